package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// system is this messaging system's name in the conventions' attributes.
const system = "forebay"

// metrics are the instruments that the process records to, with the labels of each.
type metrics struct {
	send, process, wait, life                             metric.Float64Histogram
	genAIDuration, genAIFirstChunk, genAIServerFirst      metric.Float64Histogram
	commitDuration, webhookDuration                       metric.Float64Histogram
	genAITokens, commitOperations                         metric.Int64Histogram
	attempts, ended, tokens, throttled, waits, deliveries metric.Int64Counter
	commitFailures                                        metric.Int64Counter
	cost                                                  metric.Float64Counter

	messaging   *sets[messagingLabels]
	byAttempt   *sets[attemptLabels]
	byJob       *sets[jobLabels]
	byUse       *sets[useLabels]
	genAI       *sets[genAILabels]
	byQueue     *sets[string]
	byStatus    *sets[string]
	byWait      *sets[waitLabels]
	byThrottled *sets[string]
	byWebhook   *sets[webhookLabels]
}

type (
	messagingLabels struct{ operation, queue, failure string }
	attemptLabels   struct{ queue, task, deployment, outcome, class string }
	jobLabels       struct{ queue, task, status string }
	useLabels       struct{ tenant, task, deployment, token string }
	genAILabels     struct{ operation, provider, model, failure, token string }
	waitLabels      struct{ queue, reason string }
	webhookLabels   struct{ tenant, outcome, failure string }
)

func newMetrics(meter metric.Meter) (*metrics, error) {
	m := &metrics{}
	m.label(newKnown(maxTenants, other), newKnown(maxErrorTypes, otherError))
	var errs []error
	seconds := func(into *metric.Float64Histogram, name, description string, buckets []float64) {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
		*into, errs = h, append(errs, err)
	}
	sizes := func(into *metric.Int64Histogram, name, unit, description string, buckets []float64) {
		h, err := meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
		*into, errs = h, append(errs, err)
	}
	counter := func(into *metric.Int64Counter, name, unit, description string) {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		*into, errs = c, append(errs, err)
	}
	seconds(&m.send, sendDuration, "From a submit's beginning until the job is on disk, or refused.", sendBuckets)
	seconds(&m.process, processDuration, "Of one call for a job, with the loading of its input.", lifeBuckets)
	seconds(&m.genAIDuration, genAIDuration, "Of one call of a model.", genAIBuckets)
	sizes(&m.genAITokens, genAITokens, "{token}", "Tokens that one call of a model used.", tokenBuckets)
	seconds(&m.genAIFirstChunk, genAIFirstChunk, "From sending a request to the first text of its streamed answer.", firstBuckets)
	seconds(&m.genAIServerFirst, genAIServerFirst, "The same, seen from here, under the name of the servers' metric.", firstBuckets)
	seconds(&m.wait, jobWait, "From a job's submit to the start of its first attempt.", lifeBuckets)
	seconds(&m.life, jobDuration, "From a job's submit to its end, if an attempt ended it.", lifeBuckets)
	counter(&m.attempts, jobAttempts, "{attempt}", "Attempts that ended. Of those that were lost or cancelled only that is known.")
	counter(&m.ended, jobsEnded, "{job}", "Jobs that ended, by status.")
	counter(&m.tokens, tokensUsed, "{token}", "Tokens used by all attempts.")
	cost, err := meter.Float64Counter(costUSD, metric.WithUnit("{USD}"), metric.WithDescription("What all attempts cost, in US dollars."))
	m.cost, errs = cost, append(errs, err)
	counter(&m.throttled, deploymentThrottled, "{call}", "Calls that a deployment or HTTP function turned away for its quota (429).")
	counter(&m.waits, admissionWaits, "{delivery}", "Deliveries that went back because nothing could be called.")
	seconds(&m.commitDuration, commitDuration, "Of one transaction of the store's writer. On PostgreSQL it holds the wait for other processes.", commitBuckets)
	sizes(&m.commitOperations, commitOperations, "{operation}", "Operations and claims in one transaction of the store's writer.", batchBuckets)
	counter(&m.commitFailures, commitFailures, "{transaction}", "Transactions of the store's writer that were rolled back.")
	counter(&m.deliveries, webhookDeliveries, "{delivery}", "Tries to deliver to webhooks.")
	seconds(&m.webhookDuration, webhookSendDurations, "Of one try to deliver to a webhook.", sendBuckets)
	return m, errors.Join(errs...)
}

// label says which labels the metrics have.
func (m *metrics) label(tenants, failures *known) {
	m.messaging = newSets(func(l messagingLabels) messagingLabels {
		l.failure = failures.admit(l.failure)
		return l
	}, messagingLabels{queue: other}, func(l messagingLabels) []attribute.KeyValue {
		return []attribute.KeyValue{semconv.MessagingSystemKey.String(system), semconv.MessagingOperationName(l.operation),
			semconv.MessagingOperationTypeKey.String(l.operation), semconv.MessagingDestinationName(l.queue), semconv.ErrorTypeKey.String(l.failure)}
	})
	m.byAttempt = newSets(same, attemptLabels{queue: other}, func(l attemptLabels) []attribute.KeyValue {
		return []attribute.KeyValue{keyQueue.String(l.queue), keyTask.String(l.task), keyDeployment.String(l.deployment), keyOutcome.String(l.outcome), keyErrorClass.String(l.class)}
	})
	m.byJob = newSets(same, jobLabels{queue: other}, func(l jobLabels) []attribute.KeyValue {
		return []attribute.KeyValue{keyQueue.String(l.queue), keyTask.String(l.task), keyStatus.String(l.status)}
	})
	m.byUse = newSets(func(l useLabels) useLabels {
		l.tenant = tenants.admit(l.tenant)
		return l
	}, useLabels{tenant: other}, func(l useLabels) []attribute.KeyValue {
		return []attribute.KeyValue{keyTenant.String(l.tenant), keyTask.String(l.task), keyDeployment.String(l.deployment), semconv.GenAITokenTypeKey.String(l.token)}
	})
	m.genAI = newSets(func(l genAILabels) genAILabels {
		l.failure = failures.admit(l.failure)
		return l
	}, genAILabels{provider: other}, func(l genAILabels) []attribute.KeyValue {
		return []attribute.KeyValue{semconv.GenAIOperationNameKey.String(l.operation), semconv.GenAIProviderNameKey.String(l.provider),
			semconv.GenAIRequestModel(l.model), semconv.ErrorTypeKey.String(l.failure), semconv.GenAITokenTypeKey.String(l.token)}
	})
	m.byQueue = newSets(same, other, func(queue string) []attribute.KeyValue { return []attribute.KeyValue{keyQueue.String(queue)} })
	m.byStatus = newSets(same, other, func(status string) []attribute.KeyValue { return []attribute.KeyValue{keyStatus.String(status)} })
	m.byWait = newSets(same, waitLabels{queue: other}, func(l waitLabels) []attribute.KeyValue {
		return []attribute.KeyValue{keyQueue.String(l.queue), keyReason.String(l.reason)}
	})
	m.byThrottled = newSets(same, other, func(deployment string) []attribute.KeyValue {
		return []attribute.KeyValue{keyDeployment.String(deployment)}
	})
	m.byWebhook = newSets(func(l webhookLabels) webhookLabels {
		l.tenant = tenants.admit(l.tenant)
		return l
	}, webhookLabels{tenant: other}, func(l webhookLabels) []attribute.KeyValue {
		return []attribute.KeyValue{keyTenant.String(l.tenant), keyOutcome.String(l.outcome), semconv.ErrorTypeKey.String(l.failure)}
	})
}

func same[T any](v T) T { return v }

// Recording needs no context: exemplars are off, and the attributes are all that is wanted of a call.
var bare = context.Background()
