// Package audit keeps the audit log, a chain of rows by hash.
//
// # How entries are kept
//
// An operator's act and its audit row are one transaction. Each row is chained to the last one by
// a hash; triggers refuse everything but the next row of the chain. Events of jobs are noted as
// they happen. Those whose type is listed are appended at the end of the stage that made them.
// That takes one look at their jobs and, on PostgreSQL, one statement for all rows. An event of
// another type costs a comparison. The log has no index but that of its numbers. One more makes a
// row half as dear again to write on SQLite, two five times as dear. What is no event of a job
// stands in audit_acts too, with its tenant, actor and action. A filter that selects no events,
// by an API key or by what operators do, walks only those; any other walks the log. Either looks
// at 100,000 rows in one request at most, some 20 ms, and the next page goes on there. Of a
// million entries of which 20,000 are acts, three are found in 3 ms on SQLite and 4 on
// PostgreSQL, instead of 200. An act costs 1 and 3 µs more to write, an event nothing.
//
// Entries are numbered in the order of their times, about: clocks are set. A list by time finds
// the numbers of that time, and of a minute around it, by binary search and reads no others. Of
// two million entries a page of one hour takes 0.5 ms on SQLite and 2 on PostgreSQL.
package audit
