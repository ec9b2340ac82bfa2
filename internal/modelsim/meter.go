package modelsim

import (
	"math"
	"time"
)

// Kind is a way of counting.
type Kind string

// The kinds. All but the last three charge the estimated prompt and all of max_tokens when they
// admit a call. They give nothing back, whatever becomes of the call.
const (
	// KindAzure counts in windows of a minute of unknown phase, as standard deployments of Azure
	// OpenAI do. "The counter is reset each minute" (Manage Azure OpenAI quota, "Understanding rate
	// limits").
	KindAzure Kind = "azure-openai"
	// KindRolling counts the last 60 seconds.
	KindRolling Kind = "rolling"
	// KindRollingRejected counts the last 60 seconds, including calls that it refused.
	KindRollingRejected Kind = "rolling-rejected"
	// KindBucket is a token bucket that holds ten seconds' worth.
	KindBucket Kind = "bucket"
	// KindOpenAI is a token bucket that holds a minute's worth. A call costs the larger of its
	// estimated prompt and max_tokens.
	KindOpenAI Kind = "openai"
	// KindPTU is Azure's provisioned throughput, a leaky bucket. It admits anything while it is
	// under 100 %. Cached tokens are free. The end of a call corrects its charge, up or down
	// (Provisioned throughput, "How utilization works").
	KindPTU Kind = "azure-ptu"
	// KindAnthropic has two buckets of a minute's worth. Input tokens are estimated, then corrected.
	// Output tokens are charged at the end of a call, as they were.
	KindAnthropic Kind = "anthropic"
)

// Kinds lists them all.
var Kinds = []Kind{KindAzure, KindRolling, KindRollingRejected, KindBucket, KindOpenAI, KindPTU, KindAnthropic}

// Dimension is what a call can be refused for.
type Dimension string

// The dimensions.
const (
	Requests     Dimension = "requests"
	Tokens       Dimension = "tokens"
	InputTokens  Dimension = "input_tokens"
	OutputTokens Dimension = "output_tokens"
)

// oversize is how long Azure has a request wait that is larger than a minute's quota.
const oversize = 24 * time.Hour

// Quota says how much a Meter admits and how it counts. 0 is no limit.
type Quota struct {
	Kind               Kind
	TokensPerMinute    int // with KindAnthropic of input
	OutputPerMinute    int // tokens, KindAnthropic only
	RequestsPerMinute  int
	RequestSlice       time.Duration // over which requests are counted; 0: a minute
	TokenSlice         time.Duration // over which kinds with windows count tokens; 0: a minute
	Burst              time.Duration // what a bucket holds; 0: ten seconds' worth or a minute's
	Phase              time.Duration // of the windows: when after the start the first one ends
	CountRejectedCalls bool          // any kind; always so with KindRollingRejected
}

// Cost is what a call asks for, as the service estimates it.
type Cost struct {
	Prompt, Cached int // tokens; Cached are among Prompt
	Output         int // the most it may answer
}

// Used is what a call used in the end.
type Used struct{ Prompt, Cached, Output int }

// Verdict is the decision about a call at admission.
type Verdict struct {
	Admitted bool
	Charged  int // tokens
	// Refused is the dimension that is full. RetryAfter is how long it stays so if nobody else
	// calls.
	Refused    Dimension
	RetryAfter time.Duration
	// Oversize says that waiting does not help this call.
	Oversize bool
}

// Meter counts the calls of one deployment against its quota. Callers give it the time, which
// must not go back. It is not safe for concurrent use.
type Meter struct {
	quota    Quota
	requests *gauge // nil: no limit
	tokens   *gauge // with KindAnthropic of input
	output   *gauge
}

// NewMeter returns a meter that has counted nothing.
func NewMeter(q Quota, start time.Time) *Meter {
	m := &Meter{quota: q}
	m.quota.CountRejectedCalls = q.CountRejectedCalls || q.Kind == KindRollingRejected
	if q.RequestsPerMinute > 0 {
		slice := q.RequestSlice
		if slice <= 0 {
			slice = time.Minute
		}
		// A slice that holds less than one request would admit more in a minute than the quota.
		slice = max(slice, time.Minute/time.Duration(q.RequestsPerMinute))
		m.requests = q.gauge(start, q.RequestsPerMinute, slice)
	}
	if q.TokensPerMinute > 0 {
		slice := time.Minute
		if q.windowed() && q.TokenSlice > 0 {
			slice = q.TokenSlice
		}
		m.tokens = q.gauge(start, q.TokensPerMinute, slice)
	}
	if q.Kind == KindAnthropic && q.OutputPerMinute > 0 {
		m.output = q.gauge(start, q.OutputPerMinute, time.Minute)
	}
	return m
}

// windowed reports whether the kind counts in windows; the others have buckets.
func (q Quota) windowed() bool {
	switch q.Kind {
	case KindAzure, KindRolling, KindRollingRejected:
		return true
	}
	return false
}

// gauge makes the counter of the kind.
func (q Quota) gauge(start time.Time, perMinute int, slice time.Duration) *gauge {
	g := &gauge{perMinute: float64(perMinute), factor: 1}
	holds := slice
	switch q.Kind {
	case KindRolling, KindRollingRejected:
		g.counter = &rollingWindow{length: slice}
	case KindBucket, KindOpenAI, KindPTU, KindAnthropic:
		burst := q.Burst
		if burst <= 0 && q.Kind == KindBucket {
			burst = 10 * time.Second
		}
		if burst > 0 {
			holds = min(slice, burst)
		}
		g.counter = &leaking{rate: g.perMinute / 60, speed: 1, at: start}
	default:
		g.counter = &fixedWindow{first: start.Add(q.Phase % slice), length: slice, index: -1}
	}
	g.holds = max(math.Floor(g.perMinute*holds.Seconds()/60), 1)
	return g
}

// Admit decides about a call and counts it.
func (m *Meter) Admit(now time.Time, c Cost) Verdict {
	v := m.decide(now, c)
	if !v.Admitted && !m.quota.CountRejectedCalls {
		return v
	}
	if m.requests != nil {
		m.requests.add(now, 1)
	}
	if m.tokens != nil {
		m.tokens.add(now, float64(v.Charged))
	}
	if !v.Admitted {
		return m.decide(now, c) // counted itself, the call has longer to wait
	}
	return v
}

func (m *Meter) decide(now time.Time, c Cost) Verdict {
	v := Verdict{Admitted: true, Charged: m.charge(c)}
	if m.requests != nil {
		v.judge(Requests, m.requests, now, 1)
	}
	switch {
	case m.tokens == nil:
	case m.quota.Kind == KindPTU:
		v.refuse(Tokens, m.tokens.untilRoom(now)) // any call is admitted while there is room
	case m.quota.Kind == KindAnthropic:
		v.judge(InputTokens, m.tokens, now, float64(v.Charged))
	default:
		v.judge(Tokens, m.tokens, now, float64(v.Charged))
	}
	if m.output != nil {
		v.refuse(OutputTokens, m.output.untilRoom(now))
	}
	return v
}

// charge is what a call costs at admission.
func (m *Meter) charge(c Cost) int {
	switch m.quota.Kind {
	case KindOpenAI:
		return max(c.Prompt, c.Output)
	case KindPTU:
		return max(c.Prompt-c.Cached, 0) + c.Output
	case KindAnthropic:
		return max(c.Prompt-c.Cached, 0)
	}
	return c.Prompt + c.Output
}

// judge refuses the call when n more do not fit.
func (v *Verdict) judge(d Dimension, g *gauge, now time.Time, n float64) {
	wait, never := g.wait(now, n)
	v.Oversize = v.Oversize || never
	v.refuse(d, wait)
}

// refuse notes how long a dimension stays full. The longest wait counts.
func (v *Verdict) refuse(d Dimension, wait time.Duration) {
	if wait > v.RetryAfter {
		v.Admitted, v.Refused, v.RetryAfter = false, d, wait
	}
}

// Spend counts tokens that other programs have used before now, as a share of what a window or
// bucket holds. A rolling window forgets them as if they had been used at an even rate.
func (m *Meter) Spend(now time.Time, share float64) {
	const parts = 600
	if m.tokens == nil || share <= 0 {
		return
	}
	tokens := m.tokens.holds * share
	w, rolling := m.tokens.counter.(*rollingWindow)
	if !rolling {
		m.tokens.add(now, tokens)
		return
	}
	for i := range parts {
		w.add(now.Add(-w.length+w.length*time.Duration(i+1)/parts), tokens/parts)
	}
}

// Settle ends an admitted call. Kinds that correct their estimates do so now.
func (m *Meter) Settle(now time.Time, v Verdict, used Used) {
	if !v.Admitted {
		return
	}
	fresh := max(used.Prompt-used.Cached, 0)
	switch m.quota.Kind {
	case KindPTU:
		if m.tokens != nil {
			m.tokens.add(now, float64(fresh+used.Output-v.Charged))
		}
	case KindAnthropic:
		if m.tokens != nil {
			m.tokens.add(now, float64(fresh-v.Charged))
		}
		if m.output != nil {
			m.output.add(now, float64(used.Output))
		}
	}
}

// SetFactor sets every limit to a part of the quota, from now on. State tells of it only if shown.
func (m *Meter) SetFactor(now time.Time, factor float64, shown bool) {
	for _, g := range []*gauge{m.requests, m.tokens, m.output} {
		if g != nil && (g.factor != factor || g.shown != shown) {
			g.factor, g.shown = factor, shown
			g.scale(now, factor)
		}
	}
}

// Reading is the state of one dimension, as headers report it.
type Reading struct {
	PerMinute int           // the limit of a minute
	Holds     int           // the limit of what is counted over: a minute, a slice, a bucket
	Remaining int           // of that
	Reset     time.Duration // until nothing is used
}

// State is what a deployment reports of its quota. A dimension without a limit is nil.
type State struct {
	Requests, Tokens, Input, Output *Reading
	// Utilization is that of KindPTU, 1 when it is full.
	Utilization float64
}

// State returns what the deployment would report now.
func (m *Meter) State(now time.Time) State {
	s := State{Requests: m.requests.read(now)}
	switch {
	case m.quota.Kind == KindPTU && m.tokens != nil:
		s.Utilization = m.tokens.used(now) / m.tokens.limit()
	case m.quota.Kind == KindAnthropic:
		s.Input, s.Output = m.tokens.read(now), m.output.read(now)
	default:
		s.Tokens = m.tokens.read(now)
	}
	return s
}

// gauge is a counter with its limit.
type gauge struct {
	counter
	perMinute float64
	holds     float64
	factor    float64
	shown     bool
}

func (g *gauge) limit() float64 { return g.holds * g.factor }

// wait is how long it takes until n more fit. More than a minute's quota never fits. What
// exceeds only a bucket, or a quota that was cut, fits once the bucket is empty: no client could
// know the limit.
func (g *gauge) wait(now time.Time, n float64) (d time.Duration, never bool) {
	if n > g.perMinute {
		return oversize, true
	}
	return g.until(now, max(g.limit()-n, 0)), false
}

// untilRoom is how long it takes until less than the limit is used.
func (g *gauge) untilRoom(now time.Time) time.Duration {
	if g.used(now) < g.limit() {
		return 0
	}
	return max(g.until(now, g.limit()), time.Millisecond)
}

func (g *gauge) read(now time.Time) *Reading {
	if g == nil {
		return nil
	}
	f := 1.0
	if g.shown {
		f = g.factor
	}
	return &Reading{
		PerMinute: int(g.perMinute * f), Holds: int(g.holds * f),
		Remaining: int(max(g.holds*f-g.used(now), 0)), Reset: g.until(now, 0),
	}
}
