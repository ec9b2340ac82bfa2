// Package pgtest brings a real PostgreSQL to tests and benchmarks.
//
// [Database] gives a test a fresh, empty database. It stands on the server that the environment
// variable FOREBAY_TEST_POSTGRES names (a URL whose role may create databases), else on a server
// that the package starts itself: from the binaries on the machine, or from the distribution's
// package, which is installed when that is allowed. When there is no way at all, the test fails and
// says what is missing; it is never skipped.
//
// All test binaries of one run share that server. Each holds a shared lock on a file for as long as
// it lives, so even a binary that is killed lets go. A small process, the janitor, waits for the
// last of them to leave and then stops the server and removes its folder.
//
// A test that stops, kills or configures a server has one of its own, from [New]. [Proxy] stands for
// the network in between, and [Terminate] ends a database's connections.
//
// Servers are small, but as durable as in production: fsync and synchronous_commit are on.
package pgtest
