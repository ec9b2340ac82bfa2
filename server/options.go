package server

import (
	"log/slog"
	"time"

	"github.com/forebayhq/forebay"
)

// Options configures a server. The zero value is useful: SQLite in ./forebay.db, loopback only, the
// simulated deployment and the built-in tasks. The koanf tags are the names in the YAML file;
// what is short there may stand for the section that it is in.
type Options struct {
	Database    string                `koanf:"database"`    // sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE; default sqlite:forebay.db
	Role        string                `koanf:"role"`        // what this process does: all (default), api, worker, retry-worker
	Listen      string                `koanf:"listen"`      // host:port; default 127.0.0.1:8080
	Blob        string                `koanf:"blob"`        // gocloud.dev URL (file://, s3://, azblob://); default: a folder beside the database
	TLS         TLS                   `koanf:"tls"`         //
	Log         Log                   `koanf:"log"`         //
	Limits      Limits                `koanf:"limits"`      //
	Retention   Retention             `koanf:"retention"`   //
	Audit       Audit                 `koanf:"audit"`       //
	Deployments []Deployment          `koanf:"deployments"` //
	Models      map[string]Model      `koanf:"models"`      // by logical name
	Tasks       map[string]TaskOption `koanf:"tasks"`       //
	Tenants     map[string]Tenant     `koanf:"tenants"`     //
	Queues      map[string]Queue      `koanf:"queues"`      //
	// MessageQueues are queues of plain messages, made at start-up; what is not declared is left alone.
	MessageQueues  map[string]MessageQueue `koanf:"message_queues"`
	Topics         map[string]Topic        `koanf:"topics"`         // made at start-up; what is not declared is left alone
	Intake         map[string]Intake       `koanf:"intake"`         // messages that become jobs
	Documents      Documents               `koanf:"documents"`      //
	Webhooks       Webhooks                `koanf:"webhooks"`       //
	Orchestrations Orchestrations          `koanf:"orchestrations"` //
	Workflows      []string                `koanf:"workflows"`      // their files
	Metrics        Metrics                 `koanf:"metrics"`        //
	Telemetry      Telemetry               `koanf:"telemetry"`      //
	// ShutdownTimeout is how long a graceful stop lets calls in flight finish; then they are
	// cancelled and returned to the queue without charging an attempt. Default 30 s.
	ShutdownTimeout time.Duration `koanf:"shutdown_timeout"`

	// Functions are tasks of the embedding program, beside the configured ones.
	Functions []forebay.Task `koanf:"-"`
	// Durable are orchestrators and activities of the embedding program, made by [NewOrchestrator] and [NewActivity].
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

// Log says how logs are written, to standard error.
type Log struct {
	Level  string `koanf:"level"`  // debug, info (default), warn, error
	Format string `koanf:"format"` // json, text; default text on a terminal, else json
}

// Limits bounds what comes from outside and what is held in memory.
type Limits struct {
	MaxInputBytes    int64 `koanf:"max_input_bytes"`   // of one job; default 10 MiB
	MaxMessageBytes  int64 `koanf:"max_message_bytes"` // of one plain message, with its properties; default 1 MiB
	MaxOutputBytes   int64 `koanf:"max_output_bytes"`  // of one model response; default 10 MiB
	MemoryBytes      int64 `koanf:"memory_bytes"`      // payloads held at once by requests and by running jobs, each; default 64 MiB
	Connections      int   `koanf:"connections"`       // of HTTP clients at once; default a third of the file descriptors there may be, at most 8,192
	IdempotencyHours int   `koanf:"idempotency_hours"` // how long an Idempotency-Key is remembered; default 168
	// Tenant are the limits on each tenant of which nothing else is said. What is left out has its default; 0 is no limit.
	Tenant forebay.TenantLimits `koanf:"tenant"`
}

// Webhooks says where the webhooks of tenants may lead. The zero value: to public addresses, by https.
type Webhooks struct {
	AllowHTTP      bool     `koanf:"allow_http"`      // plain http as well
	AllowAddresses []string `koanf:"allow_addresses"` // addresses or CIDR ranges that are not public and may be reached all the same
	DenyAddresses  []string `koanf:"deny_addresses"`  // public ones that may not; wins over AllowAddresses
}

// Orchestrations says how durable orchestrations are carried out.
type Orchestrations struct {
	ConcurrentTurns      int                       `koanf:"concurrent_turns"`      // in this process at once; default 64
	ConcurrentActivities int                       `koanf:"concurrent_activities"` // in this process at once; default 256
	LockDuration         time.Duration             `koanf:"lock_duration"`         // 1 s to 5 min; default 60 s
	Activities           map[string]ActivityOption `koanf:"activities"`            // by name
	CodeInQuery          bool                      `koanf:"code_in_query"`         // an API key may come as ?code= in addresses, as in Azure Functions
	GRPC                 OrchestrationsGRPC        `koanf:"grpc"`
}

// OrchestrationsGRPC is the endpoint of the Durable Task protocol, for clients and workers in other languages.
type OrchestrationsGRPC struct {
	Address         string `koanf:"address"`           // host:port; default: it is not served
	MaxMessageBytes int    `koanf:"max_message_bytes"` // that a worker is sent at once: a turn with its history, an activity with its input; default 4 MiB
}

// ActivityOption is what holds for an activity, in whatever language it is written.
type ActivityOption struct {
	Retry ActivityRetry `koanf:"retry"` // for calls that do not say
}

// ActivityRetry is how an activity is repeated when it fails.
type ActivityRetry struct {
	Attempts     int           `koanf:"attempts"`      // in all, the first included; default 1
	First        time.Duration `koanf:"first"`         // before the first repeat; default 1 s
	Coefficient  float64       `koanf:"coefficient"`   // growth of the delay; default 2
	Max          time.Duration `koanf:"max"`           // longest delay; default 1 min
	Jitter       float64       `koanf:"jitter"`        // share of each delay that is drawn at random, 0 to 1
	Timeout      time.Duration `koanf:"timeout"`       // no repeat begins later than this after the activity was scheduled; 0: no limit
	NonRetryable []string      `koanf:"non_retryable"` // types of errors that end it at once
}

// Metrics is where Prometheus may scrape.
type Metrics struct {
	Listen string `koanf:"listen"` // host:port of its own; default: metrics are not served
}

// Telemetry says where traces and metrics are sent by OTLP over HTTP. What it does not say the standard
// OTEL_… variables may; with no endpoint in either nothing is sent.
type Telemetry struct {
	OTLPEndpoint   string                    `koanf:"otlp_endpoint"`   // base URL of a collector
	OTLPHeaders    map[string]forebay.Secret `koanf:"otlp_headers"`    // sent to it
	CaptureContent bool                      `koanf:"capture_content"` // prompts and outputs become attributes of spans
}

// Deployment is one endpoint, model and region.
type Deployment struct {
	Name                  string         `koanf:"name"`
	Provider              string         `koanf:"provider"`   // openai, azure-openai, anthropic, sim
	Endpoint              string         `koanf:"endpoint"`   // base URL; required for azure-openai
	Model                 string         `koanf:"model"`      // openai, anthropic: the model's name
	Deployment            string         `koanf:"deployment"` // azure-openai: the deployment's name
	APIVersion            string         `koanf:"api_version"`
	APIKey                forebay.Secret `koanf:"api_key"`
	EntraID               bool           `koanf:"entra_id"`                 // azure-openai: authenticate with DefaultAzureCredential instead of a key
	Provisioned           bool           `koanf:"provisioned"`              // azure-openai: provisioned throughput (PTU), which counts in another way
	TokensPerMinute       int            `koanf:"tokens_per_minute"`        // 0: unknown, then learned; anthropic: of input
	OutputTokensPerMinute int            `koanf:"output_tokens_per_minute"` // only for anthropic
	MaxOutputTokens       int            `koanf:"max_output_tokens"`        // of calls that ask for no limit; 0: the provider's own
	RequestsPerMinute     int            `koanf:"requests_per_minute"`
	Concurrency           int            `koanf:"concurrency"`      // calls at once from all processes together; 0: any number
	EmbeddingInputs       int            `koanf:"embedding_inputs"` // texts that one call of the document pipeline embeds, at most; 0: documents.batch_inputs
	EmbeddingTokens       int            `koanf:"embedding_tokens"` // the same in tokens; 0: documents.batch_tokens
	Price                 forebay.Price  `koanf:"price"`
	IdleTimeout           time.Duration  `koanf:"idle_timeout"` // longest silence of a streamed answer; default 30 s
	Sim                   Sim            `koanf:"sim"`          // only for provider sim
}

// Model is what serves a logical model. In the file a list stands for its deployments alone.
type Model struct {
	Deployments []ModelDeployment `koanf:"deployments" short:"true"`
	Route       string            `koanf:"route"` // order (default), weighted, price, latency: which is tried first
}

// ModelDeployment is one of them. In the file its name stands for it.
type ModelDeployment struct {
	Name   string `koanf:"name" short:"true"`
	Weight int    `koanf:"weight"` // for the route weighted: 1 (default) to 1000
}

// InOrder returns a model that is served by the first of these deployments that admits a call.
func InOrder(deployments ...string) Model {
	var m Model
	for _, name := range deployments {
		m.Deployments = append(m.Deployments, ModelDeployment{Name: name})
	}
	return m
}

// Sim makes the simulated deployment difficult. Rates are shares of calls from 0 to 1; faults are
// drawn from a generator seeded with Seed, so that a sequence of calls repeats.
type Sim struct {
	Seed              uint64        `koanf:"seed"`
	Latency           time.Duration `koanf:"latency"` // of every answer
	Jitter            time.Duration `koanf:"jitter"`  // added, uniform from 0
	ThrottleRate      float64       `koanf:"throttle_rate"`
	RetryAfter        time.Duration `koanf:"retry_after"` // sent with injected 429s
	ErrorRate         float64       `koanf:"error_rate"`
	HangRate          float64       `koanf:"hang_rate"`
	MalformedRate     float64       `koanf:"malformed_rate"`
	RequestsPerMinute int           `koanf:"requests_per_minute"` // a real quota: 429 above it; 0: none
	RefusePhrases     []string      `koanf:"refuse_phrases"`      // what its content filter looks for
}

// TaskOption overrides a built-in task, or defines one: by a prompt, or by HTTP.
type TaskOption struct {
	Extends         string        `koanf:"extends"` // the built-in task a new one is made from; default: of its own name, else chat
	Model           string        `koanf:"model"`
	System          string        `koanf:"system"` // system prompt, a text/template over the input
	Prompt          string        `koanf:"prompt"` // user prompt, a text/template over the input
	MaxOutputTokens int           `koanf:"max_output_tokens"`
	Temperature     *float64      `koanf:"temperature"`
	Labels          []string      `koanf:"labels"` // classify: the labels when the input names none
	Queue           string        `koanf:"queue"`
	MaxAttempts     int           `koanf:"max_attempts"`
	Timeout         time.Duration `koanf:"timeout"` // of one call; default 10 min
	HTTP            *HTTPTask     `koanf:"http"`
}

// Tenant is what holds for one tenant.
type Tenant struct {
	Weight float64 `koanf:"weight"` // its share of what a queue delivers, beside others with jobs in it; default 1
	// Concurrency is how many of its jobs run at once, over all queues and processes; 0: as many as there
	// are workers. Like a budget that is set while the server runs, another holds until this is changed.
	Concurrency int    `koanf:"concurrency"`
	Budget      Budget `koanf:"budget"`
	// Limits are those that differ from limits.tenant. Others that are set while the server runs hold until this is changed.
	Limits forebay.TenantLimits `koanf:"limits"`
}

// weights are the tenants' shares that are not 1.
func (o Options) weights() map[string]float64 {
	weights := map[string]float64{}
	for name, t := range o.Tenants {
		if t.Weight > 0 {
			weights[name] = t.Weight
		}
	}
	return weights
}

// Budget is what a tenant may use in a calendar day and a calendar month of UTC. What is left out is not
// limited. A budget that is set while the server runs holds until this is changed.
type Budget struct {
	DailyUSD      *float64 `koanf:"daily_usd"`
	MonthlyUSD    *float64 `koanf:"monthly_usd"`
	DailyTokens   *int64   `koanf:"daily_tokens"` // input and output together
	MonthlyTokens *int64   `koanf:"monthly_tokens"`
}

// HTTPTask makes the task an HTTP function of the user's.
type HTTPTask struct {
	URL               string                    `koanf:"url"`
	Headers           map[string]forebay.Secret `koanf:"headers"`
	RequestsPerMinute int                       `koanf:"requests_per_minute"` // from all processes together; 0: as many as come
	Concurrency       int                       `koanf:"concurrency"`         // calls at once, likewise
}

// Queue configures one queue and its retry lane.
type Queue struct {
	Concurrency      int           `koanf:"concurrency"`        // calls at once; default 64
	LockDuration     time.Duration `koanf:"lock_duration"`      // 1 s to 5 min; default 60 s
	MaxDeliveryCount int           `koanf:"max_delivery_count"` // default 10
	Retry            Retry         `koanf:"retry"`
	OnFailure        string        `koanf:"on_failure"` // dead-letter (default), quarantine
	Tenants          []string      `koanf:"tenants"`    // if set, only these tenants may use the queue
}

// Retry is a queue's retry policy and its retry lane.
type Retry struct {
	Policy      string        `koanf:"policy"`      // exponential (default, full jitter), linear, fixed
	First       time.Duration `koanf:"first"`       // default 2 s
	Coefficient float64       `koanf:"coefficient"` // exponential: growth per attempt; default 2
	Max         time.Duration `koanf:"max"`         // longest delay; default 60 s
	Attempts    int           `koanf:"attempts"`    // in all, the first included; default 5
	Timeout     time.Duration `koanf:"timeout"`     // no retry later than this after the generation began; 0: none
	Concurrency int           `koanf:"concurrency"` // of the retry lane; default 4
	Rate        float64       `koanf:"rate"`        // starts a second in the retry lane; 0: no limit
	Budget      float64       `koanf:"budget"`      // retries as a share of all calls; default 0.2
}
