// Package bus provides queues of plain messages with the semantics of Azure Service Bus. A
// message is received under a lock with a token of its own (peek-lock). It is then completed,
// abandoned, deferred or dead-lettered, or left until the lock ends.
//
// Every queue has a dead-letter subqueue at "<queue>/$deadletterqueue". Receivers read it like a
// queue; nobody can send to it. A queue may require sessions. Then a receiver first accepts a
// session, and gets its messages to itself.
//
// The [Store] makes each step durable before it returns. Package messaging validates, applies
// limits and keeps tenants apart. Package entity has names and settings, package message the
// content of messages, package rules the rules of subscriptions, and package clockmend the repair
// of times.
//
// # Plain messages
//
// Messages share the table messages and the writer with jobs. Their bodies and properties are in
// the table bodies. A queue is for jobs or for messages, never both. The column flow says what a
// message waits for:
//
//   - 0: a receiver.
//   - 1: the time for which it is scheduled.
//   - 2: its copies, in a topic.
//   - 16 + n: the receiver of session number n.
//
// So the same index finds the next message of a queue and of a session. Receivers do not see
// messages of flow 1 or 2.
//
// The column due_at of bodies says when the writer has something to do for a message. For example,
// it activates a scheduled message, under a new number, or lets a message expire. Only messages
// with such a time are in its index. The writer processes up to 256 of them in a transaction, and
// then serves receivers in the same transaction.
//
// A session is a row of the table sessions. Its visible_at is like a message's. So one search of
// an index finds the next session to accept, however many there are. The lock of a session holds
// its messages too. They are free again when the lock is given back, or when the session is
// accepted anew. Duplicate detection keeps message ids in the table message_ids, each with the
// time when it is forgotten.
//
// # Topics
//
// The sender judges its messages by the topic's rules before its transaction. Messages that would
// make too many copies are refused before they reach the writer. The transaction compares the
// topic's version with the one that was judged. If they differ, the sender judges again.
//
// Some messages must be judged inside a transaction: forwarded ones, those that become active, and
// events of jobs. They have a limit of about 8 ms. A few goroutines judge what takes longer, one
// message of a tenant at a time.
//
// Copies of a message share one row of shared_bodies if its body has 4 KiB or more. A trigger
// deletes the row with the last copy.
//
// A send of several messages may make more than 1,000 copies. All of its messages are then stored
// in the topic first, like scheduled ones. The sender makes the copies afterwards, in several
// transactions. If it fails, the writer does so ten seconds later.
//
// One sender compiles changed rules for all senders. Rules that have not changed stay compiled.
// Senders take turns at compiling and judging: see package turns. A transaction reads and compiles
// at most 64 rules. If a topic has more and they are not compiled yet, an event or a forwarded
// message waits in the topic until they are. Messages behind it wait too.
//
// # Several steps as one
//
// [Store.Commit] does sends, settlements, cancellations and changes of session states of one
// tenant in one transaction. It is one operation among others. A refusal may not change anything,
// so all steps are checked before the first one is done.
package bus
