// Package driver is what the engine asks of a database: statements, rows and transactions, for
// SQLite and PostgreSQL alike.
//
// SQL is written once, in the subset that both understand. Columns are bigint, text or bytes.
//
// On PostgreSQL each statement costs a round trip. There are four ways to need fewer:
//
//   - Batched writes: a statement that returns nothing waits for the next one that returns
//     something, or for the commit. Equal ones become one statement over arrays ([BatchForm]).
//     One may come before others on its tables if all say that they use different rows ([Only]).
//   - Prefetch: an operation names the rows that it reads first. They are fetched as the
//     transaction begins ([Prefetch], [PrefetchForm]).
//   - Pipelines: an operation sends several statements in one round trip ([PipelineQuery]).
//   - Interleaving: several operations run by turns. One runs until it needs an answer; then the
//     next begins. One round trip brings the answers of all that wait ([Interleaving]).
//
// On SQLite a statement costs no round trip, so each runs at once.
package driver
