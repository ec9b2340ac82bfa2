// Package hostile attacks a forebay server and measures what others notice.
//
// A [Target] is a "forebay serve" process with a database of its own, SQLite or PostgreSQL. It
// has two tenants. The Victim submits jobs at a steady pace and wants each answered, started and
// ended. An [Attack] is what the other tenant, or somebody without a key, does meanwhile. The
// attack runs in a process of its own at the lowest priority, so that the server keeps its
// processor time.
//
// Windows take turns: nothing is attacked, the server is, or a bare target is, by the same
// traffic. A [Measurement] compares them: the tails of the victim's waits, the server's peak
// memory, and whether the server kept all its promises.
//
// Tail latency is judged only against the other windows of the same run, because the machine's
// speed changes. Memory, refusals and survival are judged absolutely.
//
// All of these are tests behind the build tag "hostile", for Linux. "make hostile" runs the full
// form, "make hostile-short" the short one. Every connection stays on the loopback interface.
package hostile
