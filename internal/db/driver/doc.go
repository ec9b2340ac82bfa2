// Package driver is what the engine asks of a database: statements, rows and transactions, for SQLite and PostgreSQL alike.
//
// SQL is written once, in the subset that both understand. Columns are bigint, text or bytes. On PostgreSQL each
// statement costs a round trip, so there are three ways to need fewer: writes wait and go together ([BatchForm]),
// reads are fetched as the transaction begins ([Prefetch], [PrefetchForm]), and several statements go in one
// trip ([PipelineQuery]).
package driver
