package telemetry

import "go.opentelemetry.io/otel/attribute"

// Metrics of the semantic conventions.
const (
	sendDuration     = "messaging.client.operation.duration"
	processDuration  = "messaging.process.duration"
	genAIDuration    = "gen_ai.client.operation.duration"
	genAITokens      = "gen_ai.client.token.usage"
	genAIFirstChunk  = "gen_ai.client.operation.time_to_first_chunk"
	genAIServerFirst = "gen_ai.server.time_to_first_token"
)

// Metrics that the conventions lack.
const (
	queueMessages         = "forebay.queue.messages"
	queueRetrying         = "forebay.queue.retrying"
	queueOldestAge        = "forebay.queue.oldest.age"
	databaseSize          = "forebay.database.size"
	databaseFree          = "forebay.database.free"
	jobAttempts           = "forebay.job.attempts"
	jobsEnded             = "forebay.job.ended"
	jobReplies            = "forebay.job.replies"
	jobWait               = "forebay.job.wait.duration"
	jobDuration           = "forebay.job.duration"
	tokensUsed            = "forebay.tokens"
	costUSD               = "forebay.cost.usd"
	deploymentThrottled   = "forebay.deployment.throttled"
	deploymentInFlight    = "forebay.deployment.in_flight"
	deploymentPaused      = "forebay.deployment.paused"
	deploymentDenied      = "forebay.deployment.denied"
	deploymentChanges     = "forebay.deployment.changes"
	breakerState          = "forebay.breaker.state"
	quotaLimit            = "forebay.quota.limit"
	quotaUsed             = "forebay.quota.used"
	budgetLimit           = "forebay.budget.limit.usd"
	budgetUsed            = "forebay.budget.used.usd"
	budgetTokenLimit      = "forebay.budget.limit.tokens"
	budgetTokensUsed      = "forebay.budget.used.tokens"
	budgetLimitOfKey      = "forebay.key.budget.limit.usd"
	budgetUsedOfKey       = "forebay.key.budget.used.usd"
	budgetTokenLimitOfKey = "forebay.key.budget.limit.tokens"
	budgetTokensUsedOfKey = "forebay.key.budget.used.tokens"
	admissionWaits        = "forebay.admission.waits"
	commitDuration        = "forebay.store.commit.duration"
	commitOperations      = "forebay.store.commit.operations"
	commitFailures        = "forebay.store.commit.failures"
	webhookDeliveries     = "forebay.webhook.deliveries"
	webhookSendDurations  = "forebay.webhook.duration"
	azureMessages         = "forebay.azure_service_bus.messages"
	azureFailures         = "forebay.azure_service_bus.failures"

	orchestrationInstances  = "forebay.orchestration.instances"
	orchestrationOldestAge  = "forebay.orchestration.oldest.age"
	orchestrationTurns      = "forebay.orchestration.turns"
	orchestrationActivities = "forebay.orchestration.activities"
	orchestrationsEnded     = "forebay.orchestration.ended"
)

// Attributes that the conventions lack.
const (
	keyQueue      = attribute.Key("forebay.queue")
	keyState      = attribute.Key("forebay.state")
	keyTask       = attribute.Key("forebay.task")
	keyTenant     = attribute.Key("forebay.tenant")
	keyDeployment = attribute.Key("forebay.deployment")
	keyOutcome    = attribute.Key("forebay.outcome")
	keyErrorClass = attribute.Key("forebay.error.class")
	keyStatus     = attribute.Key("forebay.status")
	keyReason     = attribute.Key("forebay.reason")
	keyDimension  = attribute.Key("forebay.dimension")
	keyPeriod     = attribute.Key("forebay.period")
	keyID         = attribute.Key("forebay.key.id")
	keyAttempt    = attribute.Key("forebay.attempt.number")
	keyGeneration = attribute.Key("forebay.generation")
	keyExisting   = attribute.Key("forebay.existing")
	keyChange     = attribute.Key("forebay.change")
	keyWebhook    = attribute.Key("forebay.webhook")
	keyConnector  = attribute.Key("forebay.connector")

	keyOrchestrator = attribute.Key("forebay.orchestrator")
	keyActivity     = attribute.Key("forebay.activity")
)

// Outcomes of replies.
const (
	replySent   = "sent"
	replyFailed = "failed"
)

// Bucket boundaries. Those of metrics of the conventions are the recommended ones.
var (
	sendBuckets   = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	genAIBuckets  = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	firstBuckets  = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	tokenBuckets  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	lifeBuckets   = []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
	commitBuckets = []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5}
	batchBuckets  = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)
