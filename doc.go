// Package forebay is the domain of Forebay: jobs, attempts, events, queues, usage, money and
// errors.
//
// A client submits a [Job], and the job's message waits in a queue. A worker takes the message
// under a lock and calls a deployment of a model, which is one [Attempt]. The job ends in exactly
// one recorded outcome. A failed attempt does not repeat in place: the message moves to the
// queue's retry lane with a delay. A job that cannot succeed moves to the queue's dead-letter or
// quarantine subqueue. There it can be inspected, edited and redriven as a new generation.
//
// The package does no I/O and imports nothing else of Forebay. Its JSON tags are the wire
// contract.
package forebay
