// Package quota answers one question: may this call go to this deployment now?
//
// A [State] is all that is known of one deployment: what was sent in the last 60 seconds, what the
// provider said it has left, the limit learned from its refusals, the pause it asked for, its circuit
// breaker. It is a value. Whoever stores its bytes ([State.MarshalBinary]) where all processes read
// and write them one after the other has one admission for all processes; nothing is kept anywhere
// else, there is no clock and no goroutine here. Times are Unix milliseconds of one clock, the
// database's, and are given to each call.
//
// [State.Admit] takes candidates from a line and reserves what each needs before it is called;
// [State.Feedback] takes back what the call said: its rate-limit headers, its refusal, its failure,
// its use. A reservation is never refunded because a process died: it ages out of the window after
// 60 seconds, when the provider has forgotten the call as well.
//
// # Rules and where they come from
//
//   - What a call is charged at admission, per provider: Azure OpenAI, "Manage quota" (prompt estimated by
//     characters + max_tokens, counter reset each minute, failures count); Azure OpenAI, "Provisioned
//     throughput" (leaky bucket, corrected at completion, cached tokens subtracted); OpenAI, "Rate limits"
//     (the larger of max_tokens and the estimate); Anthropic, "Rate limits" (input and output tokens as
//     continuously refilled buckets, cache reads free). See [Accounting].
//   - Never more than the limit in any 60 seconds: that fits a fixed window of any phase as well as a
//     rolling one, without knowing which it is.
//   - Pace is GCRA, the leaky bucket as a meter (ITU-T I.371, annex A), at 1.25 times the limit: enough to
//     catch up within a minute, too slow to fill a provider's shorter window in one burst.
//   - The limit falls by a factor and grows by steps, as TCP's congestion window does (RFC 5681), with
//     steps that become longer while nothing is refused.
//   - The breaker counts a share of failures in a window, opens for growing times and lets one probe
//     through at a time (Nygard, "Release It!", ch. 5; the half-open state as in Hystrix). A deployment that turns
//     calls away for its key, its account or its name opens it at once, and for longer.
//   - One job that is larger than the whole limit goes when nothing else was sent for 60 seconds: it
//     would wait for ever otherwise.
//
// Makespan alone does not tell strategies apart; the tests measure ratio to the bound, share of refused
// calls, and tokens charged for nothing, against simulated providers of each kind.
package quota

import (
	"time"

	"github.com/forebayhq/forebay"
)

// Accounting is how a provider counts tokens.
type Accounting uint8

const (
	// AccountNone counts requests only: an HTTP function, or an endpoint without token limits.
	AccountNone Accounting = iota
	// AccountAzureOpenAI charges prompt + max output at admission and never settles.
	AccountAzureOpenAI
	// AccountAzurePTU charges prompt + max output at admission and corrects it at completion, without cached tokens.
	AccountAzurePTU
	// AccountOpenAI charges the larger of prompt and max output at admission and never settles.
	AccountOpenAI
	// AccountAnthropic charges the prompt, corrected at completion, and in a budget of its own the real output.
	AccountAnthropic
)

// Limits is the configuration of one deployment. A limit of 0 is unknown: it is then learned from
// headers and refusals alone. A limit that is set is kept even where the provider would allow more.
type Limits struct {
	Accounting             Accounting
	TokensPerMinute        int64 // Anthropic: input tokens
	OutputTokensPerMinute  int64 // Anthropic only
	RequestsPerMinute      int64
	DefaultMaxOutputTokens int64 // that requests name which set none; 0: they name none, and 4,096 are assumed until it is learned what is counted
}

// Request is what a call is expected to need.
type Request struct {
	PromptTokens    int64 // an estimate: bytes/4 of the prompt with its template
	MaxOutputTokens int64 // of all completions asked for together; 0: the deployment's default; < 0: has no output, as embeddings
	// Source is whose calls and of what kind they are, such as a digest of tenant and task: what prompts and answers of
	// one source are like says nothing of another's. 0: not said.
	Source int64
	// Unnamed: the request itself names no max output, so that MaxOutputTokens is an assumption. Reserving sets it.
	Unnamed bool
}

// Dimension is one thing that a provider limits.
type Dimension uint8

const (
	Tokens       Dimension = iota // prompt and output together, or the input where output counts apart
	Requests                      //
	OutputTokens                  // where output counts apart
	dimensions
)

// Amount is a quantity in each dimension.
type Amount [dimensions]int64

// Reservation is what was set aside for one call. It travels with the delivery and comes back with
// each [State.Feedback] about the call.
type Reservation struct {
	At      int64 // when it was made
	Seq     int64 // counts the deployment's reservations from 1
	Amount  Amount
	Request Request // with the default of MaxOutputTokens filled in
	Probe   bool    // the call finds out whether the deployment works again
	Unwell  bool    // so many of its calls failed lately that another that does tells little about its job
	Again   bool    // a call of its job had failed before
	Tenant  int64   // whose job it is; 0: not said
	// Mixed: of the calls made since the outage began, or what looks like one, some have gone well. So a probe that
	// fails may be its job's own fault.
	Mixed bool
	// Spent are running totals of the deployment, against which headers are read: this call and those that are
	// certain to reach the provider before it.
	Spent Amount
	// Left are the tokens that had left the window by then, a running total of the deployment.
	Left int64
	// Total are the tokens reserved ever, this call's included.
	Total int64
}

// Verdict says whether a call was admitted, and if not, why and until when.
type Verdict struct {
	Reason  forebay.WaitReason // empty: admitted. WaitQuota, WaitBreaker or WaitPaused
	RetryAt int64              // the earliest time when asking again is worth it, unless feedback comes before; 0: when somebody resumes it
	// Smaller is set when a smaller call might be admitted now.
	Smaller bool
}

// Admitted reports whether the call may go.
func (v Verdict) Admitted() bool { return v.Reason == "" }

// OutcomeKind is what became of a call.
type OutcomeKind uint8

const (
	HeadersArrived    OutcomeKind = iota // the call goes on; it was accepted, its first token or its headers are here
	Succeeded                            //
	Throttled                            // 429 that does not say on what
	ThrottledTokens                      // 429 on tokens
	ThrottledRequests                    // 429 on requests
	Oversize                             // 429 because this one request is larger than the deployment: no pause
	Transient                            // 5xx, 408, 529, no connection, a timeout, a broken stream
	Denied                               // the deployment turned the call away as it would any other, or perhaps: see [Denial]
	Permanent                            // the request's own fault, or the caller gave up: says nothing about the deployment
	NotSent                              // nothing was sent: everything is given back
)

// Denial is why a deployment turns every call away, whatever it asks for.
type Denial uint8

const (
	NotDenied    Denial = iota
	Unauthorized        // its key was revoked, or is not allowed this
	Unpaid              // its account is out of credit, or has reached its spending limit
	NotFound            // there is no such model, deployment or path
	denials
)

// String returns the code of the error that tells of it, "" of none.
func (d Denial) String() string {
	return [...]string{"", "unauthorized", "insufficient_quota", "not_found"}[d%denials]
}

// Outcome is what a call told.
type Outcome struct {
	Kind OutcomeKind
	// Denial is why a call was denied. Unless it is Certain that any call would have been, it may be this one's own fault.
	Denial     Denial
	Certain    bool
	RetryAfter time.Duration // of a 429; 0: not said
	Usage      Usage         // of a call that succeeded; zero: unknown
	Headers    Headers
}

// Usage is what a call really used. Cached tokens are part of the prompt's.
type Usage struct{ PromptTokens, CachedTokens, OutputTokens int64 }

// Headers are the rate-limit headers of one answer. Values of 0 and below are "not said": some APIs
// send 0 or -1 for what they do not count.
type Headers struct {
	Limit, Remaining Amount
	Reset            [dimensions]time.Duration // until what remains is renewed or full again
}

// Random returns numbers in [0, 1), such as rand.Float64; tests give a seeded one.
type Random func() float64

// ChangeKind names a change that people want to know of.
type ChangeKind string

const (
	BreakerOpened   ChangeKind = "breaker_opened"
	BreakerHalfOpen ChangeKind = "breaker_half_open"
	BreakerClosed   ChangeKind = "breaker_closed"
	LimitLowered    ChangeKind = "limit_lowered"  // learned from a refusal, or said by the provider
	LimitRestored   ChangeKind = "limit_restored" // the whole quota is used again
	Paused          ChangeKind = "paused"         // the provider asked for it
)

// Change is an event in the life of a deployment.
type Change struct {
	At    int64
	Kind  ChangeKind
	Until int64 // of a pause or an open breaker
	Limit int64 // tokens per minute, of a change of the limit
	// Denial is why a breaker was opened that was not by failures.
	Denial Denial
}
