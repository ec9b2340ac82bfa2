// Package admission decides whether a call may go now: by what is known of deployments, by
// limits of concurrency and by budgets.
//
// A claim reserves what its call may use, in the transaction that locks the job. The settlement
// replaces that by what the call did use. Rows belong to this package; the state of a
// deployment is internal/quota's.
//
// # Changes of a state
//
// Changes of a state (breaker, learned limit, pauses) are rows of deployment_changes and messages
// of a topic. They are written in the transaction that made them. The process whose transaction
// it was logs and counts them.
//
// # Concurrency limits
//
// A tenant or a deployment with a concurrency takes only so many calls at once. Which are under
// way is known: those whose locks hold their messages. So a slot is a row that finds the lock. It
// is written with the lock and removed with the settlement. Once a lock was voided or has ended,
// its row counts for nothing, whoever died. Nobody has to remove such a row: a sweep does when
// hundreds are left over. A transaction that finds candidates of a capped holder counts once;
// those that have no slot stay as they are. Scans leave out the flows of a tenant that is full.
// They do so until one of its calls is settled or the first of its locks ends. The settlement
// tells the other processes. Where nobody is capped nothing is read or written.
//
// # Budgets
//
// A claim, once the job's call is admitted, inserts a row for each budget that pays (the
// tenant's, the key's). The row holds what the call may use at most. The settlement's transaction
// deletes it and books the use. A delivery also ends by the next claim of its expired lock, by a
// cancel or by an expiry. Whoever ends it so marks the row as lost and books all of it, in its
// own transaction. The worker's amendment, should it come, puts that right. The table spending
// has a row for each budget and period with the sums of both. So deciding reads one row for each
// budget, once a transaction. Room is asked for before the quota, so that a job without room
// reserves none.
//
// A job without room gets a visible at the end of the period and a row of budget_waits with what
// it needs. So a tenant's backlog is passed over once and not looked at again. The turn of the
// period needs nobody. Each booking, or a raised limit, makes as many visible as fit, in order. It
// looks at 256. If none of these fits, the next also looks at as many behind them.
// Every two seconds on PostgreSQL, and 30 on SQLite, the budgets that are waited for are looked
// at in any case.
//
// Who has a budget is kept in memory, like paused queues, so all others pay nothing. A job
// remembers the key that submitted it only if that key has a budget.
package admission
