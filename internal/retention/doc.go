// Package retention deletes what is kept no longer: jobs that are over, with all that belongs to
// them, and old idempotency keys. It works in short transactions, so that others can use the
// database in between.
package retention
