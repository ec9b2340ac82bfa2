// Package retention deletes what is kept no longer: jobs that are over, with all that belongs to
// them, and old idempotency keys. It works in short transactions, so that others can use the
// database in between.
//
// # How rows are found
//
// Finished jobs are deleted by age, by default after 90 days, with their outcomes, attempts,
// events and blobs. No index by time is kept for that. Jobs are numbered in the order in which
// they were made. So a purge walks from the oldest until the first that is too young to be over
// for so long. It reads 5,000 at a time and deletes at most 200 in a transaction. Then it leaves
// the database to others for three times as long as that took. Among the processes that share a
// database one has the turn each hour. An idempotency key stays until its own time is over. A
// repeat of one whose job was purged is refused as gone, and makes no second job.
package retention
