// Package admission decides whether a call may go now: by what is known of deployments, by
// limits of concurrency and by budgets.
//
// A claim reserves what its call may use, in the transaction that locks the job. The settlement
// replaces that by what the call did use. Rows belong to this package; the state of a
// deployment is internal/quota's.
package admission
