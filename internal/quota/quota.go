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
//
// # What a state knows and decides
//
// internal/quota decides whether a call may go to a deployment now. What it knows of one is a
// value of at most 4 KB that stands in one row, for each provider, endpoint and model that is
// configured under the name: whoever decides reads it, decides for a batch of jobs, takes in what
// calls have told, and writes it back in the same transaction. All processes so share one
// admission, on the database's clock; a job that may not go is not locked and loses no delivery.
// Deciding costs 0.2 µs a call, reading and writing the state 9 µs a transaction.
//
//   - The charge is the provider's: Azure OpenAI prompt + max output and no refund; OpenAI the
//     larger of both; Azure PTU and Anthropic settle by real use when the call ends, Anthropic's
//     output in a budget of its own. Our count of a prompt is corrected by κ; σ, how far single
//     prompts are from it, is the margin. κ has two factors. The use that answers report tells how
//     large a source's prompts really are. Headers tell how the charge differs from that use. A
//     source is a tenant's jobs of one task, kept as a digest; the 12 newest are kept, and what
//     one source is like changes nothing for another that is known.
//
//   - A single call's charge is learned from runs of up to 24 calls made one after the other. What
//     was left after each says in which order the provider saw them, so the charge of each is the
//     difference to the one before it. Others' calls only ever add. So the shortest interval that
//     holds half of the newest 48 samples counts, and nothing is learned where samples disagree.
//
//   - No max output named: 4,096 are reserved until headers of 8 calls have told what the provider
//     counts then. With Azure PTU, which settles, the 95th percentile of what the source's answers
//     took is reserved.
//
//   - No max output named, no headers: nothing tells that a guess is too high, and only a refusal
//     that it is too low. After 8 answers without headers the least is guessed, 16 tokens beside
//     the prompt. After a refusal that comes long before a minute's end it is the mean of the
//     answers, after another one their 95th percentile; each guess lasts a minute at least. Calls
//     that end count as what is guessed by then. After ten minutes without a refusal on tokens the
//     guess before is tried again.
//
//   - Others' share of the quota is what two headers differ by, within one window of the provider,
//     less what was reserved between their calls. Where the window slides it is what the provider
//     counts and we have not sent. From 3 % of the quota on, it is taken from what the headers
//     said, with 2 σ, and that word then holds until the reset that they name.
//
//   - The window: never more than the limit in any 60 seconds, in slices of a quarter of a second.
//     That fits a fixed minute of unknown phase and a rolling one alike.
//
//   - Headers not older than five seconds, or up to the reset they name, count for more than the
//     window: what they say remains, less what was sent since, less what may have overtaken the
//     call that they belong to, and less a margin of at most 1 % of the quota that grows when they
//     turn out to have said too much. What remains of requests in a slice of seconds is not used.
//     What they show to be counted beyond the window, before κ was known or by other programs, is
//     taken from the window until that reset.
//
//   - The pace is 1.25 times the limit with a burst of five seconds (GCRA), and looks at no call's
//     size. Refusals before the minute's worth was sent, that ask for ten seconds at most, lower
//     the pace and not the limit: that provider counts over a shorter time. After a pause calls go
//     on one by one.
//
//   - One call asks first where headers are old and most of the window is used, after a refusal on
//     tokens, and after a minute without a call, where two go. The others follow when it is heard
//     of, or after 3 s (1.5 s). So a window that others have used, or that calls left later than
//     they seemed to, costs one refusal and not a burst of them.
//
//   - Sliding windows. Where the reset that headers name moves with time, or Retry-After is much
//     shorter than it, the window is rolling or a bucket. What others have used is then forgotten
//     by and by, at a quarter of an even rate until the next header, for they may go on. While it
//     is not known, one call asks every five seconds. Where resets stay, what others have used
//     counts until then, and only our calls since the provider's window began are taken from it.
//     Two headers tell how fast others' use changes; for three seconds that is taken to go on. A
//     rolling window that forgets each call after a minute is recognised, and what is left then
//     grows by our calls that leave it. After a burst has left, one call asks.
//
//   - Requests by the second. Azure evaluates requests over 1 or 10 seconds, so there at most half
//     a second's worth goes at once. A refusal that names its wait to the millisecond tells when
//     the next window begins, and its own call tells how long a call takes to arrive. From then
//     on, for ten minutes, each window gets its calls at its beginning, when others have had no
//     time to fill it. When calls that came so are refused, others were there: one call less goes
//     in each window, and one more after two minutes, the next time after four and so on. Without
//     such a wait, a refusal on requests cuts the burst to 20 ms and the pace by 1 %, later by 2 %
//     each, and by 6 to 12 % where others call as well; it grows again by 1 % in 30 s. Where
//     tokens are scarcer, requests then go at most twice as fast as tokens allow.
//
//   - Headers of a second's requests tell the same without a refusal. Where more is left than
//     before, a second began in between. Where less is left than our calls account for, others
//     called. A call late in a second goes when others are less than 0.6 % likely to have filled
//     it by then.
//
//   - A refusal (429) pauses everybody until the time it names. The refused call is given back,
//     unless the first call after a pause was refused too: then refused calls seem to be counted,
//     and pauses double. At most once in 15 seconds the limit becomes, unless the refusal's
//     headers say that less was left than the call needs, max(0.2 Q, 0.7 L, 0.98 · min(L, reserved
//
//   - refused)); after 20 quiet seconds it grows by 1 % of Q each 10 seconds, each step half as
//     long again as the last. A limit in headers is followed at once, up to what is configured.
//
//   - Backfill (EASY): what the first job that does not fit needs is set aside for the time at
//     which the window will have it. Of the next 64 those go that take nothing of that, by the
//     window and by the pace. Nothing is set aside for a job larger than the whole limit, nor
//     across lanes. Nobody is passed over for more than 45 seconds; then what frees up is kept for
//     it. A job larger than the whole limit goes to a deployment of its route that is large
//     enough, and where none is, when nothing was reserved for a minute.
//
//   - Other jobs of the lane do not wait behind those that are held. Within a lane each tenant and
//     priority has a flow for each class of what its jobs call (a hash of the model or function;
//     nothing is a class too), and a scan reads the beginning of each. Only what calls the same
//     waits behind a job that may not go, so that a backlog of any length in front of a deployment
//     that is used up costs a scan no more than a few hundred rows. What calls something else all
//     the same, for there are 63 classes and a task's model may change, is found behind it by a
//     backfill scan of the flow, 1,000 messages at a time.
//
//   - The breaker looks at the latest 60 calls in the order in which they began. It opens when
//     there are at least 10 in a row of which those that failed outnumber the others, also those
//     not heard of yet, by 6. So it does not matter how many went well before, nor that those
//     still do that began before, nor that failures come sooner than successes; where most fail it
//     takes some 10 failures at any rate of calls, and where a fifth fails it happens once in
//     20,000. From the first failure on, and as long as those that failed outnumber all begun
//     since, the cheapest job goes first, so that finding out costs few tokens. Failures that took
//     more than 20 s, as timeouts do, tell of a time that is over: they open it when less than
//     half of at least 10 calls heard of in 20 s went well, or 10 in a row failed. Where more than
//     60 calls begin until a failure is heard of, the first of the two holds once ten seconds were
//     seen. It is open for half a second at first, for many jobs at fault may just have come at
//     once. Then it is open for 2 s · 1.5ⁿ ± 20 %: at most 10 s in the first five minutes of an
//     outage, so that a short one is over soon after it ends, later 30 s. Then one job tries at a
//     time; three in a row that reach their first token close it, and calls that began before say
//     nothing more. Another follows a probe that nobody hears of for ten seconds.
//
//   - Jobs that always fail must not look like an outage. A job that fails again while others go
//     well says nothing about the deployment. Jobs that have not failed yet probe first, by turns
//     the cheapest and one drawn from a tenant that is drawn. Once a call has gone well since the
//     outage began, any may be the next, the breaker opens for 2 s only, and for a minute after it
//     closed jobs go in no order. The first three times, while the outage is less than ten seconds
//     old, the breaker opens for half a second to two seconds only, and three jobs probe at once,
//     which stand far apart in the line. Each that goes well makes room for one more. It opens
//     again when as many failed as there was room for. Where calls had gone well and others had
//     failed before it opened, a call that was under way and goes well ends the pause and counts
//     as a probe. Right after some calls went well it takes a lead of 20 failures to open it.
//     Later one probes at a time again, so that a brown-out costs little. A repeated failure does
//     not open it again, and such jobs probe a second apart, so that they end. An outage that only
//     repeated failures bring about, or calls that failed after later ones had gone well, is taken
//     for such from the beginning.
//
//   - Failures of one tenant alone keep nobody else away. They do not open the breaker while a
//     call of another tenant went well that began in the last 20 s and after the tenant's calls
//     began to fail. The tenant's jobs fail by themselves, within their attempts. Once a call of
//     another tenant fails, ten more failures open it. In an outage where one failing tenant alone
//     calls it so opens up to 20 s later. While the breaker is open for other reasons, such a
//     tenant's jobs do not probe if others wait, and a failed probe of theirs says nothing. Before
//     a call of another tenant has gone well, nobody knows whose fault it is, and the breaker
//     opens as usual. Two tenants that act together are not told from an outage.
//
//   - A deployment that turns every call away, for its key, its account or its name, opens the
//     breaker by one answer, for a minute, then two, up to fifteen; one success closes it. That
//     the key is no good is permanent, and the call is not made again to the deployment that said
//     so, while it says so; but it says nothing of the job, which goes back uncharged. A job alone
//     with such a deployment waits, for a revoked key must not dead-letter a backlog. A refusal
//     that may be the request's own (a firewall's 403, a 402 for its max output) fails its job,
//     until there were three without a success in between; not if the breaker is open or half-
//     open, or was since the call began, for what fails may turn calls away as well. While the
//     latest refusal is in doubt the times between probes do not grow: they cost nothing, and
//     other tenants' jobs may be all right. Each probe is by another job, and every other one by
//     the job that fair share has first, so that one that is refused for itself does not keep the
//     deployment closed to all, and a job that time after time is the first to be turned away
//     fails in the end: after ten calls that cost it nothing, after three in doubt. A start of a
//     server has one call try at once: whether its key is another is not compared, for no digest
//     of it is stored.
//
//   - A crash needs nothing: reservations are not refunded, they age out.
//
//   - Routes. A job has a list of deployments in the order of its model's route: as configured,
//     drawn by weight, by estimated price, by latency as this process has measured it. In each
//     round all that wait try their first, then those that are left their second: the next whose
//     reservation succeeds has the job. What nobody admits stays where it is.
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

// perMinute are the limits of each dimension.
func (l Limits) perMinute() Amount {
	return Amount{l.TokensPerMinute, l.RequestsPerMinute, l.OutputTokensPerMinute}
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

func (a *Amount) add(b Amount) {
	for d := range a {
		a[d] += b[d]
	}
}

func (a *Amount) sub(b Amount) {
	for d := range a {
		a[d] -= b[d]
	}
}

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
