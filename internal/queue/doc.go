// Package queue has tenants, queues, their subqueues and locks, which jobs and plain messages
// share.
//
// # Names
//
// The number of a tenant or queue that is not in memory is read outside of the writer, once
// however many ask. Tenants that are new are written together, in one transaction without an
// answer to wait for but its commit.
package queue
