// Package postgres is the driver for PostgreSQL. It speaks the extended protocol through
// pgconn, pipelines statements and merges equal ones over arrays. One transaction at a time
// writes, by an advisory lock; those that only add rows run beside it.
package postgres
