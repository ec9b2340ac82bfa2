package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/forebayhq/forebay"
)

// system is the name of this messaging system in the attributes of the conventions.
const system = "forebay"

// metrics are the counters and histograms of jobs.
type metrics struct {
	send, process                                    *vector[messagingLabels]
	attempts                                         *vector[attemptLabels]
	ended, replies, wait, throttled                  *vector[string]
	life                                             *vector[jobLabels]
	tokens, cost                                     *vector[useLabels]
	genAIDuration, genAIFirstChunk, genAIServerFirst *vector[genAILabels]
	genAITokens                                      *vector[genAILabels]
	waits                                            *vector[waitLabels]
	deliveries, webhookDuration                      *vector[webhookLabels]
	azureMessages                                    *vector[connectorLabels]
	azureFailures                                    *vector[connectorFailureLabels]
	changes                                          *vector[changeLabels]
	turns, activities, orchestrationsEnded           *vector[functionLabels]
	commitDuration, commitOperations, commitFailures *series
}

type (
	messagingLabels struct{ operation, queue, failure string }
	attemptLabels   struct{ queue, task, deployment, outcome, class string }
	jobLabels       struct{ queue, task, status string }
	useLabels       struct{ tenant, task, deployment, token string }
	genAILabels     struct{ operation, provider, model, failure, token string }
	waitLabels      struct{ queue, reason string }
	webhookLabels   struct{ tenant, outcome, failure string }
	changeLabels    struct{ deployment, change string }
	functionLabels  struct{ name, result string }
)

func seconds(name, description string, buckets []float64) spec {
	return spec{name: name, unit: "s", description: description, bounds: buckets}
}

func sizes(name, unit, description string, buckets []float64) spec {
	return spec{name: name, unit: unit, description: description, bounds: buckets}
}

func counter(name, unit, description string) spec {
	return spec{name: name, unit: unit, description: description, whole: true}
}

func newMetrics(r *recorder) *metrics {
	m := &metrics{}
	m.ofMessages(r)
	m.ofJobs(r)
	m.ofModels(r)
	m.ofWebhooks(r)
	m.ofConnectors(r)
	m.ofOrchestrations(r)
	m.changes = newVector(r, counter(deploymentChanges, "{change}", "What happened to deployments, counted by the process whose transaction it was."), labelling[changeLabels]{
		rest: changeLabels{deployment: other},
		attrs: func(l changeLabels) []attribute.KeyValue {
			return []attribute.KeyValue{keyDeployment.String(l.deployment), keyChange.String(l.change)}
		},
	})
	alone := func(f spec) *series { return newVector(r, f, text(keyReason)).of("") }
	m.commitDuration = alone(seconds(commitDuration, "Of one transaction of the store's writer. On PostgreSQL it holds the wait for other processes.", commitBuckets))
	m.commitOperations = alone(sizes(commitOperations, "{operation}", "Operations and claims in one transaction of the store's writer.", batchBuckets))
	m.commitFailures = alone(counter(commitFailures, "{transaction}", "Transactions of the store's writer that were rolled back."))
	return m
}

// text is the labelling by one text attribute.
func text(key attribute.Key) labelling[string] {
	return labelling[string]{rest: other, attrs: func(value string) []attribute.KeyValue { return []attribute.KeyValue{key.String(value)} }}
}

func (m *metrics) ofMessages(r *recorder) {
	failures := newKnown(maxErrorTypes, otherError)
	labels := labelling[messagingLabels]{
		bound: func(l messagingLabels) messagingLabels {
			l.failure = failures.admit(l.failure)
			return l
		},
		rest: messagingLabels{queue: other},
		attrs: func(l messagingLabels) []attribute.KeyValue {
			return []attribute.KeyValue{semconv.MessagingSystemKey.String(system), semconv.MessagingOperationName(l.operation),
				semconv.MessagingOperationTypeKey.String(l.operation), semconv.MessagingDestinationName(l.queue), semconv.ErrorTypeKey.String(l.failure)}
		},
	}
	m.send = newVector(r, seconds(sendDuration, "From a submit's beginning until the job is on disk, or refused.", sendBuckets), labels)
	m.process = newVector(r, seconds(processDuration, "Of one call for a job, with the loading of its input.", lifeBuckets), labels)
}

func (m *metrics) ofJobs(r *recorder) {
	m.wait = newVector(r, seconds(jobWait, "From a job's submit to the start of its first attempt.", lifeBuckets), text(keyQueue))
	m.life = newVector(r, seconds(jobDuration, "From a job's submit to its end, if an attempt ended it.", lifeBuckets), labelling[jobLabels]{
		rest: jobLabels{queue: other},
		attrs: func(l jobLabels) []attribute.KeyValue {
			return []attribute.KeyValue{keyQueue.String(l.queue), keyTask.String(l.task), keyStatus.String(l.status)}
		},
	})
	m.attempts = newVector(r, counter(jobAttempts, "{attempt}", "Attempts that ended. Of those that were lost or cancelled only that is known."), labelling[attemptLabels]{
		rest: attemptLabels{queue: other},
		attrs: func(l attemptLabels) []attribute.KeyValue {
			return []attribute.KeyValue{keyQueue.String(l.queue), keyTask.String(l.task), keyDeployment.String(l.deployment), keyOutcome.String(l.outcome), keyErrorClass.String(l.class)}
		},
	})
	for _, outcome := range []forebay.Outcome{forebay.OutcomeLost, forebay.OutcomeCancelled} {
		// A series exists from the start, so that its first count is an increase.
		m.attempts.of(attemptLabels{outcome: string(outcome)})
	}
	m.ended = newVector(r, counter(jobsEnded, "{job}", "Jobs that ended, by status."), text(keyStatus))
	for _, status := range forebay.Statuses {
		if status.Terminal() {
			m.ended.of(string(status))
		}
	}
	m.replies = newVector(r, counter(jobReplies, "{reply}", "Answers of jobs to the messages that they were made of: sent, or failed."), text(keyOutcome))
	for _, outcome := range []string{replySent, replyFailed} {
		m.replies.of(outcome)
	}
	m.throttled = newVector(r, counter(deploymentThrottled, "{call}", "Calls that a deployment or HTTP function turned away for its quota (429)."), text(keyDeployment))
	m.waits = newVector(r, counter(admissionWaits, "{time}", "Times that jobs of a queue were ready and could not be called."), labelling[waitLabels]{
		rest: waitLabels{queue: other},
		attrs: func(l waitLabels) []attribute.KeyValue {
			return []attribute.KeyValue{keyQueue.String(l.queue), keyReason.String(l.reason)}
		},
	})
	tenants := newKnown(maxTenants, other)
	used := labelling[useLabels]{
		bound: func(l useLabels) useLabels {
			l.tenant = tenants.admit(l.tenant)
			return l
		},
		rest: useLabels{tenant: other},
		attrs: func(l useLabels) []attribute.KeyValue {
			return []attribute.KeyValue{keyTenant.String(l.tenant), keyTask.String(l.task), keyDeployment.String(l.deployment), semconv.GenAITokenTypeKey.String(l.token)}
		},
	}
	m.tokens = newVector(r, counter(tokensUsed, "{token}", "Tokens used by all attempts."), used)
	m.cost = newVector(r, spec{name: costUSD, unit: "{USD}", description: "What all attempts cost, in US dollars."}, used)
}

func (m *metrics) ofModels(r *recorder) {
	failures := newKnown(maxErrorTypes, otherError)
	labels := labelling[genAILabels]{
		bound: func(l genAILabels) genAILabels {
			l.failure = failures.admit(l.failure)
			return l
		},
		rest: genAILabels{provider: other},
		attrs: func(l genAILabels) []attribute.KeyValue {
			return []attribute.KeyValue{semconv.GenAIOperationNameKey.String(l.operation), semconv.GenAIProviderNameKey.String(l.provider),
				semconv.GenAIRequestModel(l.model), semconv.ErrorTypeKey.String(l.failure), semconv.GenAITokenTypeKey.String(l.token)}
		},
	}
	m.genAIDuration = newVector(r, seconds(genAIDuration, "Of one call of a model.", genAIBuckets), labels)
	m.genAITokens = newVector(r, sizes(genAITokens, "{token}", "Tokens that one call of a model used.", tokenBuckets), labels)
	m.genAIFirstChunk = newVector(r, seconds(genAIFirstChunk, "From sending a request to the first text of its streamed answer.", firstBuckets), labels)
	m.genAIServerFirst = newVector(r, seconds(genAIServerFirst, "The same of calls that succeed, seen from here, under the name of the servers' metric.", firstBuckets), labels)
}

func (m *metrics) ofWebhooks(r *recorder) {
	tenants := newKnown(maxTenants, other)
	labels := labelling[webhookLabels]{
		bound: func(l webhookLabels) webhookLabels {
			l.tenant = tenants.admit(l.tenant)
			return l
		},
		rest: webhookLabels{tenant: other},
		attrs: func(l webhookLabels) []attribute.KeyValue {
			return []attribute.KeyValue{keyTenant.String(l.tenant), keyOutcome.String(l.outcome), semconv.ErrorTypeKey.String(l.failure)}
		},
	}
	m.deliveries = newVector(r, counter(webhookDeliveries, "{delivery}", "Tries to deliver to webhooks."), labels)
	m.webhookDuration = newVector(r, seconds(webhookSendDurations, "Of one try to deliver to a webhook.", sendBuckets), labels)
}
