// Package pgtest provides a real PostgreSQL to tests and benchmarks.
//
// [Database] gives a test a new, empty database. The environment variable FOREBAY_TEST_POSTGRES
// names the server by a URL whose role may create databases. Without it the package starts a
// server itself, from the binaries on the machine or from the distribution's package, which it
// installs if it may. If no way works, the test fails and says what is missing. It is never
// skipped.
//
// All test binaries of one run share that server. Each holds a shared lock on a file for as long
// as it lives, so even a killed binary releases it. A small process, the janitor, waits until the
// last of them has ended. Then it stops the server and removes its folder.
//
// A test that stops, kills or configures a server has its own, from [New]. [Proxy] is a network
// in front of it that can fail, and [Terminate] ends a database's connections.
//
// Servers are small but as durable as in production: fsync and synchronous_commit are on.
package pgtest
