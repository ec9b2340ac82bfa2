package modelsim

import (
	"fmt"
	"math"
	"time"

	"github.com/forebayhq/forebay"
)

// ServerOptions configures a Server.
type ServerOptions struct {
	Listen string         `yaml:"listen"`
	APIKey forebay.Secret `yaml:"api_key"` // "": none is asked for
	Seed   uint64         `yaml:"seed"`
	// AnyModel has calls for unknown names go to the first deployment, instead of a 404.
	AnyModel    bool         `yaml:"any_model"`
	Log         string       `yaml:"log"` // a file to append a line of JSON to for each call; "": none
	Deployments []Deployment `yaml:"deployments"`
}

// Deployment configures one model: its quota, its speed and its faults. DefaultDeployment has the
// defaults.
type Deployment struct {
	Name  string `yaml:"name"`
	Model string `yaml:"model"` // answers name it; calls may use either name

	Kind                  Kind     `yaml:"kind"`
	TokensPerMinute       int      `yaml:"tokens_per_minute"`        // 0: no limit
	OutputTokensPerMinute int      `yaml:"output_tokens_per_minute"` // KindAnthropic; -1: a fifth of tokens_per_minute
	RequestsPerMinute     int      `yaml:"requests_per_minute"`      // 0: no limit; -1: 6 for each 1,000 tokens per minute
	RequestSlice          Duration `yaml:"request_slice"`            // -1ns: 10s with KindAzure, else a minute
	TokenSlice            Duration `yaml:"token_slice"`              // kinds with windows; 0: a minute
	Burst                 Duration `yaml:"burst"`                    // kinds with buckets; 0: 10s with KindBucket, else a minute
	Phase                 Duration `yaml:"phase"`                    // kinds with windows; below 0: drawn from the seed
	CountRejectedCalls    bool     `yaml:"count_rejected_calls"`
	Headers               Headers  `yaml:"headers"`

	// ForeignShare is the share of the tokens per minute that another client asks for, at random
	// times. SpentShare is the share of the quota that was used before the start.
	ForeignShare float64 `yaml:"foreign_share"`
	SpentShare   float64 `yaml:"spent_share"`
	// RoundTrip is the delay of the network. Half of it passes before a call is counted, and
	// half before its answer.
	RoundTrip Duration `yaml:"round_trip"`

	// EstimateFactor and EstimateSpread say how the estimate of a prompt differs from the reported
	// tokens. The first is a factor for all prompts, the second a standard deviation among them.
	EstimateFactor float64 `yaml:"estimate_factor"`
	EstimateSpread float64 `yaml:"estimate_spread"`
	// CachedShare is the share of each prompt that is in the service's cache.
	CachedShare float64 `yaml:"cached_share"`

	FirstToken      Duration `yaml:"first_token"`
	TokensPerSecond float64  `yaml:"tokens_per_second"` // of each answer; 0: all at once

	Content Content `yaml:"content"`
	// OutputTokens is the median length of answers in ContentText. OutputSpread is the standard
	// deviation of its logarithm. MaxOutputTokens limits calls that name no limit.
	OutputTokens    int     `yaml:"output_tokens"`
	OutputSpread    float64 `yaml:"output_spread"`
	MaxOutputTokens int     `yaml:"max_output_tokens"`

	Faults      Script  `yaml:"faults"`
	FaultsScale float64 `yaml:"faults_scale"` // of the script's times
}

// Headers says what answers tell of the quota.
type Headers string

// The kinds of headers.
const (
	HeadersFull       Headers = "full"        // limit, remaining and reset; on a 429 how long to wait
	HeadersSlice      Headers = "slice"       // the same, but requests by the slice, as Azure has been seen to do
	HeadersRemaining  Headers = "remaining"   // only what remains; on a 429 how long to wait
	HeadersRetryAfter Headers = "retry-after" // only on a 429 how long to wait
	HeadersMisspelled Headers = "misspelled"  // what remains; on a 429 x-rate-limit-reset-tokens for Retry-After
	HeadersUnknown    Headers = "unknown"     // -1 and 0 for everything, nothing on a 429
	HeadersNone       Headers = "none"
)

// HeaderKinds lists them all.
var HeaderKinds = []Headers{HeadersFull, HeadersSlice, HeadersRemaining, HeadersRetryAfter, HeadersMisspelled, HeadersUnknown, HeadersNone}

// Content says what answers hold. Structured output is always ContentWork, so that it fits its
// schema.
type Content string

// The kinds of content.
const (
	ContentText Content = "text" // prose of a drawn length: most answers are short, a few very long
	ContentWork Content = "work" // work on the prompt: summaries, labels, sentiment, replies
)

const (
	maxDeployments = 1000
	maxNameBytes   = 128
	maxPerMinute   = 1_000_000_000_000
	maxOutput      = 1_000_000 // tokens of one answer
	maxDelay       = time.Hour
)

// DefaultDeployment is an Azure OpenAI standard deployment of 240,000 tokens per minute.
func DefaultDeployment() Deployment {
	return Deployment{
		Name: "sim", Kind: KindAzure, TokensPerMinute: 240_000, OutputTokensPerMinute: -1, RequestsPerMinute: -1,
		RequestSlice: -1, Phase: -1, Headers: HeadersFull, EstimateFactor: 1,
		FirstToken: Duration(300 * time.Millisecond), TokensPerSecond: 100,
		Content: ContentText, OutputTokens: 150, OutputSpread: 1, MaxOutputTokens: 1024, FaultsScale: 1,
	}
}

// quota is what the deployment's meter counts against. drawn, 0 to below 1, is for a phase that is
// drawn.
func (d Deployment) quota(drawn float64) Quota {
	q := Quota{Kind: d.Kind, TokensPerMinute: d.TokensPerMinute, OutputPerMinute: d.OutputTokensPerMinute,
		RequestsPerMinute: d.RequestsPerMinute, RequestSlice: time.Duration(d.RequestSlice), TokenSlice: time.Duration(d.TokenSlice), Burst: time.Duration(d.Burst),
		Phase: time.Duration(d.Phase), CountRejectedCalls: d.CountRejectedCalls}
	if q.OutputPerMinute < 0 {
		q.OutputPerMinute = d.TokensPerMinute / 5
	}
	if q.RequestsPerMinute < 0 && d.Kind == KindPTU {
		q.RequestsPerMinute = 0
	} else if q.RequestsPerMinute < 0 && d.TokensPerMinute > 0 {
		q.RequestsPerMinute = max(d.TokensPerMinute/1000*6, 6)
	}
	if q.RequestSlice < 0 && d.Kind == KindAzure {
		q.RequestSlice = 10 * time.Second
	}
	if q.Phase < 0 {
		q.Phase = time.Duration(drawn * float64(time.Minute))
	}
	return q
}

// Validate returns a *forebay.Error about the first option that is invalid, or nil.
func (o ServerOptions) Validate() error {
	switch n := len(o.Deployments); {
	case n == 0:
		return forebay.Invalid("deployments", "there must be one at least")
	case n > maxDeployments:
		return forebay.Invalid("deployments", "there are %d; the limit is %d", n, maxDeployments)
	}
	for _, c := range []byte(o.APIKey) {
		if c <= ' ' || c >= 0x7f {
			return forebay.Invalid("api_key", "holds a space, a line break or a character outside ASCII")
		}
	}
	names := map[string]bool{}
	for i, d := range o.Deployments {
		at := fmt.Sprintf("deployments[%d].", i)
		if err := d.validate(at); err != nil {
			return err
		}
		if names[d.Name] {
			return forebay.Invalid(at+"name", "%.64q is given twice", d.Name)
		}
		names[d.Name] = true
	}
	return nil
}

func (d Deployment) validate(at string) error {
	if d.Name == "" || len(d.Name) > maxNameBytes || len(d.Model) > maxNameBytes {
		return forebay.Invalid(at+"name", "names must be 1 to %d bytes", maxNameBytes)
	}
	if err := oneOf(at+"kind", d.Kind, Kinds); err != nil {
		return err
	}
	if err := oneOf(at+"headers", d.Headers, HeaderKinds); err != nil {
		return err
	}
	if err := oneOf(at+"content", d.Content, []Content{ContentText, ContentWork}); err != nil {
		return err
	}
	for _, n := range []struct {
		name             string
		value, from, end float64
	}{
		{"tokens_per_minute", float64(d.TokensPerMinute), 0, maxPerMinute},
		{"output_tokens_per_minute", float64(d.OutputTokensPerMinute), -1, maxPerMinute},
		{"requests_per_minute", float64(d.RequestsPerMinute), -1, maxPerMinute},
		{"foreign_share", d.ForeignShare, 0, 1},
		{"spent_share", d.SpentShare, 0, 1},
		{"estimate_factor", d.EstimateFactor, 0.01, 100},
		{"estimate_spread", d.EstimateSpread, 0, 10},
		{"cached_share", d.CachedShare, 0, 1},
		{"tokens_per_second", d.TokensPerSecond, 0, maxPerMinute},
		{"output_tokens", float64(d.OutputTokens), 1, maxOutput},
		{"output_spread", d.OutputSpread, 0, 10},
		{"max_output_tokens", float64(d.MaxOutputTokens), 1, maxOutput},
		{"faults_scale", d.FaultsScale, 0.0001, 10_000},
	} {
		if math.IsNaN(n.value) || n.value < n.from || n.value > n.end {
			return forebay.Invalid(at+n.name, "must be %v to %v", n.from, n.end)
		}
	}
	for _, t := range []struct {
		name  string
		value Duration
		least time.Duration
		most  time.Duration
	}{
		{"request_slice", d.RequestSlice, -1, time.Minute}, {"token_slice", d.TokenSlice, 0, time.Minute}, {"round_trip", d.RoundTrip, 0, time.Minute}, {"burst", d.Burst, 0, time.Minute},
		{"phase", d.Phase, -1, time.Minute}, {"first_token", d.FirstToken, 0, maxDelay},
	} {
		if v := time.Duration(t.value); v < t.least || v > t.most {
			return forebay.Invalid(at+t.name, "must be 0 to %v", t.most)
		}
	}
	if d.Burst != 0 && time.Duration(d.Burst) < time.Second || d.RequestSlice > 0 && time.Duration(d.RequestSlice) < time.Second ||
		d.TokenSlice != 0 && time.Duration(d.TokenSlice) < time.Second {
		return forebay.Invalid(at+"burst", "burst, request_slice and token_slice must be 1s at least")
	}
	if err := d.Faults.Validate(); err != nil {
		return fmt.Errorf("%s%w", at, err)
	}
	return nil
}

func oneOf[T ~string](field string, value T, all []T) error {
	for _, v := range all {
		if v == value {
			return nil
		}
	}
	return forebay.Invalid(field, "must be one of %v, not %.64q", all, string(value))
}
