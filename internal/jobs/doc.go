// Package jobs is the life of a job: submit, claim, attempt, settle, retry, dead-letter, redrive,
// cancel.
//
// A [Service] decides what a valid job is and which payloads go to blob storage. Its [Worker]
// claims jobs and decides what a failed call leads to. The [Store] makes each decision durable in
// one transaction. Package dispatch makes the calls.
//
// Which ready job goes next is decided in three steps. A scan of a subqueue (scan.go) finds ready
// jobs in the order of package flows. Package admission decides which of them may be called now.
// The claim locks those (claim_rows.go).
//
// # Tables
//
// A row of jobs is the record as submitted; only a redrive may edit it. A row of messages is small
// and changes often. A job has one until it ends, and while it is dead-lettered or quarantined. A
// row of outcomes says how the latest generation ended. Rows of attempts and events are added.
// The status of a job is not stored: it follows from which rows exist.
//
// # One column is the schedule
//
// A message may be delivered from messages.visible_at on. A scheduled start, a retry delay, a
// throttle pause and the end of a lock are all such a time. So there is no reaper and no timer
// wheel: an index on (subqueue, flow, visible_at) serves them all. A queue has four subqueues:
// main, retry, dead-letter and quarantine. A message moves by an update of its subqueue.
//
// # Claims wait in the writer
//
// A claim that finds nothing waits in the writer. The writer knows when the next message of each
// subqueue becomes visible, and sleeps until then. A submission wakes it in the same transaction.
// Nothing polls, except that an idle server checks every 30 seconds whether the clock has jumped.
// If a claim waits and nothing else is ready, a new job is handed off: its message is stored
// locked (handoff.go).
//
// # Locks are tokens
//
// Each delivery gets a new random token. Every settlement is an update or a delete with
// "WHERE seq = ? AND lock_token = ?". If no row matches, it returns forebay.ErrLockLost and
// changes nothing.
//
// The holder of an expired lock may still settle the job until another claim gets it. The call is
// paid for, and the token proves that there is no other result. (The expired lock of a plain
// message settles nothing, as in Service Bus.) The primary key of outcomes is the job. It is the
// last guard of one result per generation.
//
// # Crashes
//
// A claim writes the delivery count, so a job that kills its worker is counted. When an expired
// lock is claimed again, the attempt before is recorded as lost.
//
// On SQLite, a process takes the database file for itself as it starts. Holders of earlier locks
// are then dead. So their locks end at once, and the backlog runs within the concurrency of the
// queue. A process also notices when somebody replaces the file (internal/db/sqlite/file.go).
//
// # Events
//
// What happens to a job is a row of events, written with the change. Two events of a job that
// goes well, accepted and succeeded, have no row: they follow from the job and its outcome. That
// saves a tenth of what a job costs. Nor has the first start, until a redrive stores it.
//
// Every event is published to the topic job-events of the job's tenant, in the transaction of the
// change. The followers of a topic are known without a query until a topic changes.
//
// # Sessions
//
// One job of a session has the turn. The others are invisible: their visible_at is the end of
// time. When the job has ended for good, the same transaction gives the turn to the next. Claims
// know nothing of sessions. The call of a cancelled job may go on for a while. The next job then
// waits until the worker reports the end of the call, or until the voided lock would have ended.
//
// # Cancel
//
// A cancel is one transaction. It deletes the message, which voids the worker's lock, and writes
// the outcome. Then the call under way is aborted. Its result can no longer be recorded. The
// worker adds to the cancelled attempt only which deployment was called and what the call used.
package jobs
