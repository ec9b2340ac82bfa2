// Package driver is what the engine asks of a database: statements, rows and transactions, for
// SQLite and PostgreSQL alike.
//
// SQL is written once, in the subset that both understand. Columns are bigint, text or bytes. On
// PostgreSQL each statement costs a round trip. There are four ways to need fewer:
//
//   - Writes wait, and go together with the next read or the commit ([BatchForm]).
//   - Reads are fetched as the transaction begins ([Prefetch], [PrefetchForm]).
//   - Several statements go in one trip ([PipelineQuery]).
//   - Calls that do not depend on each other wait for their answers together ([Driver.Interleave]).
package driver
