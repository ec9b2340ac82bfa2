// Package azurebus connects Forebay with Azure Service Bus, by Microsoft's client.
//
// A [Source] takes the messages of a queue or a subscription there and makes jobs of them. It
// receives under peek-lock and completes a message only once its job is on disk here. The
// message id is the job's idempotency key, so a message that comes again makes no second job.
// What can never become a job is dead-lettered there, by the rules of package trigger. While
// the queue of jobs is paused, the source has no connection. While a message cannot become a
// job now, the source keeps its lock and receives no more.
//
// A [Sink] sends the events of a tenant's jobs to a queue or a topic there. It reads a
// subscription of the topic job-events, whose messages all belong to one session. So one
// process at a time sends, in order, and another goes on where that one was killed. An event is
// completed here once the service has accepted it.
//
// # Failures
//
// After a failure a connector closes its client, pauses and begins anew. Pauses grow from half
// a second to half a minute and are drawn at random (retry.Policy).
package azurebus
