package server

import (
	"log/slog"
	"time"

	"github.com/forebayhq/forebay"
)

// Options configures a server. The zero value is useful: SQLite in ./forebay.db, loopback only,
// the simulated deployment and the built-in tasks. The koanf tags are the names in the YAML file.
// In a file, the value of a field with the tag short can stand for its section.
type Options struct {
	// Database is sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE; default
	// sqlite:forebay.db.
	Database string `koanf:"database"`
	// Role says what this process does: all (default), api, worker, retry-worker.
	Role   string `koanf:"role"`
	Listen string `koanf:"listen"` // host:port; default 127.0.0.1:8080
	// Blob is a gocloud.dev URL (file://, s3://, azblob://). The default is a folder beside the
	// database.
	Blob        string                `koanf:"blob"`
	TLS         TLS                   `koanf:"tls"`
	Log         Log                   `koanf:"log"`
	Limits      Limits                `koanf:"limits"`
	Retention   Retention             `koanf:"retention"`
	Audit       Audit                 `koanf:"audit"`
	Deployments []Deployment          `koanf:"deployments"`
	Models      map[string]Model      `koanf:"models"` // by logical name
	Tasks       map[string]TaskOption `koanf:"tasks"`
	Tenants     map[string]Tenant     `koanf:"tenants"`
	Queues      map[string]Queue      `koanf:"queues"`
	// MessageQueues are created or updated at start-up. Queues that are not declared stay as they
	// are.
	MessageQueues map[string]MessageQueue `koanf:"message_queues"`
	// Topics are created or updated at start-up. Topics that are not declared stay as they are.
	Topics    map[string]Topic  `koanf:"topics"`
	Intake    map[string]Intake `koanf:"intake"` // messages that become jobs
	Documents Documents         `koanf:"documents"`
	OpenAI    OpenAI            `koanf:"openai"` // files, batches and calls
	UI        UI                `koanf:"ui"`     // the dashboard
	// AzureServiceBus connects with real Azure Service Bus.
	AzureServiceBus AzureServiceBus `koanf:"azure_service_bus"`
	Webhooks        Webhooks        `koanf:"webhooks"`
	ServiceBus      ServiceBus      `koanf:"service_bus"`
	Orchestrations  Orchestrations  `koanf:"orchestrations"`
	Workflows       []string        `koanf:"workflows"` // their files
	Metrics         Metrics         `koanf:"metrics"`
	Telemetry       Telemetry       `koanf:"telemetry"`
	// ShutdownTimeout is how long a graceful stop lets running calls finish. Then they are
	// cancelled, and their jobs return to the queue without charging an attempt. The default is 30
	// s.
	ShutdownTimeout time.Duration `koanf:"shutdown_timeout"`

	// Functions are tasks of the embedding program, in addition to the configured ones.
	Functions []forebay.Task `koanf:"-"`
	// Durable are orchestrators and activities of the embedding program, made by [NewOrchestrator]
	// and [NewActivity].
	Durable []DurableFunction `koanf:"-"`
	// Logger replaces the one that Log describes.
	Logger *slog.Logger `koanf:"-"`
	// Version is shown to clients.
	Version string `koanf:"-"`
}

// TLS serves HTTPS when both files are given.
type TLS struct {
	CertFile string `koanf:"cert_file"`
	KeyFile  string `koanf:"key_file"`
}

// Log configures the log, which goes to standard error.
type Log struct {
	Level  string `koanf:"level"`  // debug, info (default), warn, error
	Format string `koanf:"format"` // json, text; default text on a terminal, else json
}

// Limits bounds requests and the memory for payloads.
type Limits struct {
	MaxInputBytes int64 `koanf:"max_input_bytes"` // of one job; default 10 MiB
	// MaxMessageBytes limits one plain message with its properties; default 1 MiB.
	MaxMessageBytes int64 `koanf:"max_message_bytes"`
	MaxOutputBytes  int64 `koanf:"max_output_bytes"` // of one model response; default 10 MiB
	// MemoryBytes limits the payloads held at once by requests, and those held by running jobs;
	// default 64 MiB each.
	MemoryBytes int64 `koanf:"memory_bytes"`
	// Connections limits concurrent HTTP connections. The default is a third of the file
	// descriptors, at most 8,192.
	Connections int `koanf:"connections" default:"at most 8192"`
	// IdempotencyHours is how long an Idempotency-Key is remembered; default 168.
	IdempotencyHours int `koanf:"idempotency_hours"`
	// Tenant are the limits of each tenant without limits of its own. A field that is left out has
	// its default. 0 means no limit.
	Tenant forebay.TenantLimits `koanf:"tenant"`
}

// Webhooks says where webhooks of tenants may go. The zero value allows public addresses over
// https.
type Webhooks struct {
	AllowHTTP bool `koanf:"allow_http"` // plain http as well
	// AllowAddresses are addresses or CIDR ranges that are allowed although they are not public.
	AllowAddresses []string `koanf:"allow_addresses"`
	// DenyAddresses are public addresses that are not allowed. They take precedence over
	// AllowAddresses.
	DenyAddresses []string `koanf:"deny_addresses"`
}

// Orchestrations configures durable orchestrations.
type Orchestrations struct {
	// ConcurrentTurns limits concurrent orchestrator work items of this process; default 64.
	ConcurrentTurns int `koanf:"concurrent_turns"`
	// ConcurrentActivities limits concurrent activities of this process; default 256.
	ConcurrentActivities int `koanf:"concurrent_activities"`
	// LockDuration is from 1 s to 5 min; default 60 s.
	LockDuration time.Duration             `koanf:"lock_duration"`
	Activities   map[string]ActivityOption `koanf:"activities"` // by name
	// CodeInQuery accepts an API key as ?code=, as in Azure Functions.
	CodeInQuery bool               `koanf:"code_in_query"`
	GRPC        OrchestrationsGRPC `koanf:"grpc"`
}

// OrchestrationsGRPC is the endpoint of the Durable Task protocol, for clients and workers in
// other languages.
type OrchestrationsGRPC struct {
	Address string `koanf:"address"` // host:port; default: it is not served
	// MaxMessageBytes limits one message to a worker: a work item with its history, or an activity
	// with its input. The default is 4 MiB.
	MaxMessageBytes int `koanf:"max_message_bytes"`
}

// ActivityOption configures an activity in any language.
type ActivityOption struct {
	Retry ActivityRetry `koanf:"retry"` // for calls that do not say
}

// ActivityRetry is the retry policy of an activity.
type ActivityRetry struct {
	Attempts    int           `koanf:"attempts" default:"1"`    // in all, the first included; default 1
	First       time.Duration `koanf:"first" default:"1s"`      // before the first repeat; default 1 s
	Coefficient float64       `koanf:"coefficient" default:"2"` // growth of the delay; default 2
	Max         time.Duration `koanf:"max" default:"1m"`        // longest delay; default 1 min
	// Jitter is the share of each delay that is drawn at random, 0 to 1.
	Jitter float64 `koanf:"jitter"`
	// Timeout is measured from when the activity was scheduled. No retry begins later; 0 means no
	// limit.
	Timeout      time.Duration `koanf:"timeout"`
	NonRetryable []string      `koanf:"non_retryable"` // types of errors that end it at once
}

// Metrics configures the address for Prometheus.
type Metrics struct {
	Listen string `koanf:"listen"` // host:port of its own; default: metrics are not served
}

// Telemetry says where OTLP over HTTP sends traces and metrics. The standard OTEL_… variables
// supply what is not set here. Without an endpoint in either nothing is sent.
type Telemetry struct {
	OTLPEndpoint string                    `koanf:"otlp_endpoint"` // base URL of a collector
	OTLPHeaders  map[string]forebay.Secret `koanf:"otlp_headers"`  // sent to it
	// CaptureContent makes prompts and outputs attributes of spans.
	CaptureContent bool `koanf:"capture_content"`
}

// Deployment is one endpoint, model and region.
type Deployment struct {
	Name       string `koanf:"name"`
	Provider   string `koanf:"provider"`   // openai, azure-openai, anthropic, sim
	Endpoint   string `koanf:"endpoint"`   // base URL; required for azure-openai
	Model      string `koanf:"model"`      // openai, anthropic: the model's name
	Deployment string `koanf:"deployment"` // azure-openai: the deployment's name
	APIVersion string `koanf:"api_version"`
	// API (openai, azure-openai) is responses for a server that speaks the Responses API. Requests
	// for responses then reach it as they are. Otherwise they become chat completions.
	API    string         `koanf:"api"`
	APIKey forebay.Secret `koanf:"api_key"`
	// EntraID (azure-openai) authenticates with DefaultAzureCredential instead of a key.
	EntraID bool `koanf:"entra_id"`
	// Provisioned (azure-openai) means provisioned throughput (PTU), whose usage is counted
	// differently.
	Provisioned bool `koanf:"provisioned"`
	// TokensPerMinute is learned if it is 0. For anthropic it limits the input only.
	TokensPerMinute       int `koanf:"tokens_per_minute"`
	OutputTokensPerMinute int `koanf:"output_tokens_per_minute"` // only for anthropic
	// MaxOutputTokens is for calls without a limit; 0: the provider's own.
	MaxOutputTokens   int `koanf:"max_output_tokens"`
	RequestsPerMinute int `koanf:"requests_per_minute"`
	// Concurrency limits concurrent calls of all processes together; 0 means no limit.
	Concurrency int `koanf:"concurrency"`
	// EmbeddingInputs limits the texts that one call of the document pipeline embeds; 0:
	// documents.batch_inputs.
	EmbeddingInputs int `koanf:"embedding_inputs"`
	// EmbeddingTokens limits the tokens of such a call; 0: documents.batch_tokens.
	EmbeddingTokens int           `koanf:"embedding_tokens"`
	Price           forebay.Price `koanf:"price"`
	// IdleTimeout is the longest silence of a streamed answer; default 30 s.
	IdleTimeout time.Duration `koanf:"idle_timeout" default:"30s"`
	Sim         Sim           `koanf:"sim"` // only for provider sim
}

// Model lists the deployments of a logical model. In the file, a plain list can stand for the
// section.
type Model struct {
	Deployments []ModelDeployment `koanf:"deployments" short:"true"`
	// Route says which deployment is tried first: order (default), weighted, price or latency.
	Route string `koanf:"route"`
}

// ModelDeployment is one deployment of a model. In the file, its plain name can stand for the
// section.
type ModelDeployment struct {
	Name   string `koanf:"name" short:"true"`
	Weight int    `koanf:"weight" default:"1"` // for the route weighted: 1 (default) to 1000
}

// InOrder returns a model whose calls go to the first of these deployments that admits them.
func InOrder(deployments ...string) Model {
	var m Model
	for _, name := range deployments {
		m.Deployments = append(m.Deployments, ModelDeployment{Name: name})
	}
	return m
}

// Sim adds faults to the simulated deployment. Rates are shares of calls from 0 to 1. A generator
// with the seed Seed draws the faults, so a sequence of calls is repeatable.
type Sim struct {
	Seed          uint64        `koanf:"seed"`
	Latency       time.Duration `koanf:"latency"` // of every answer
	Jitter        time.Duration `koanf:"jitter"`  // added, uniform from 0
	ThrottleRate  float64       `koanf:"throttle_rate"`
	RetryAfter    time.Duration `koanf:"retry_after"` // sent with injected 429s
	ErrorRate     float64       `koanf:"error_rate"`
	HangRate      float64       `koanf:"hang_rate"`
	MalformedRate float64       `koanf:"malformed_rate"`
	// RequestsPerMinute is a real quota, with 429 above it; 0 means none.
	RequestsPerMinute int      `koanf:"requests_per_minute"`
	RefusePhrases     []string `koanf:"refuse_phrases"` // what its content filter looks for
}

// TaskOption changes a built-in task, or defines one by a prompt or by HTTP.
type TaskOption struct {
	// Extends is the built-in task that this one changes. The default is the one of its name, else
	// chat.
	Extends         string        `koanf:"extends"`
	Model           string        `koanf:"model"`
	Models          []string      `koanf:"models"` // chat: further models that an input may name
	System          string        `koanf:"system"` // system prompt, a text/template over the input
	Prompt          string        `koanf:"prompt"` // user prompt, a text/template over the input
	MaxOutputTokens int           `koanf:"max_output_tokens"`
	Temperature     *float64      `koanf:"temperature"`
	Labels          []string      `koanf:"labels"` // classify: the labels when the input names none
	Queue           string        `koanf:"queue"`
	MaxAttempts     int           `koanf:"max_attempts" default:"the queue"`
	Timeout         time.Duration `koanf:"timeout" default:"10m"` // of one call; default 10 min
	HTTP            *HTTPTask     `koanf:"http"`
}

// Tenant configures one tenant.
type Tenant struct {
	// Weight is its share of what a queue delivers, relative to other tenants with jobs; default
	// 1.
	Weight float64 `koanf:"weight" default:"1"`
	// Concurrency is how many of its jobs run at once in all queues and processes; 0 means no
	// limit. A value that is set while the server runs stays in force until this option changes.
	Concurrency int    `koanf:"concurrency"`
	Budget      Budget `koanf:"budget"`
	// Limits override limits.tenant. A limit that is set while the server runs stays in force
	// until this option changes.
	Limits forebay.TenantLimits `koanf:"limits"`
}

// weights returns the weights of tenants that are not 1.
func (o Options) weights() map[string]float64 {
	weights := map[string]float64{}
	for name, t := range o.Tenants {
		if t.Weight > 0 {
			weights[name] = t.Weight
		}
	}
	return weights
}

// Budget limits the usage of a tenant in a calendar day and a calendar month of UTC. A field that
// is left out means no limit. A budget that is set while the server runs stays in force until this
// option changes.
type Budget struct {
	DailyUSD      *float64 `koanf:"daily_usd"`
	MonthlyUSD    *float64 `koanf:"monthly_usd"`
	DailyTokens   *int64   `koanf:"daily_tokens"` // input and output together
	MonthlyTokens *int64   `koanf:"monthly_tokens"`
}

// HTTPTask defines a task as an HTTP function of the user.
type HTTPTask struct {
	URL     string                    `koanf:"url"`
	Headers map[string]forebay.Secret `koanf:"headers"`
	// RequestsPerMinute limits the calls of all processes together; 0 means no limit.
	RequestsPerMinute int `koanf:"requests_per_minute"`
	// Concurrency limits concurrent calls of all processes together; 0 means no limit.
	Concurrency int `koanf:"concurrency"`
}

// Queue configures one queue and its retry lane.
type Queue struct {
	Concurrency      int           `koanf:"concurrency"`        // calls at once; default 64
	LockDuration     time.Duration `koanf:"lock_duration"`      // 1 s to 5 min; default 60 s
	MaxDeliveryCount int           `koanf:"max_delivery_count"` // default 10
	Retry            Retry         `koanf:"retry"`
	OnFailure        string        `koanf:"on_failure"` // dead-letter (default), quarantine
	// Tenants, if set, are the only tenants that may use the queue.
	Tenants []string `koanf:"tenants"`
}

// Retry is a queue's retry policy and its retry lane.
type Retry struct {
	// Policy is exponential (default, full jitter), linear or fixed.
	Policy      string        `koanf:"policy"`
	First       time.Duration `koanf:"first"`       // default 2 s
	Coefficient float64       `koanf:"coefficient"` // exponential: growth per attempt; default 2
	Max         time.Duration `koanf:"max"`         // longest delay; default 60 s
	Attempts    int           `koanf:"attempts"`    // in all, the first included; default 5
	// Timeout is measured from the beginning of the generation. No retry begins later; 0 means no
	// limit.
	Timeout     time.Duration `koanf:"timeout"`
	Concurrency int           `koanf:"concurrency"` // of the retry lane; default 4
	Rate        float64       `koanf:"rate"`        // starts a second in the retry lane; 0: no limit
	Budget      float64       `koanf:"budget"`      // retries as a share of all calls; default 0.2
}
