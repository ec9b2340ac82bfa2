// Package sqlite is the driver for SQLite: one connection that writes, a lock on the file, and
// what to tell of its disk.
package sqlite
