// Package quota answers one question: may this call go to this deployment now?
//
// A [State] is all that is known of one deployment. It holds what was sent in the last 60
// seconds, what the provider said is left, the limit learned from refusals, and the circuit
// breaker. It is a value of at most 4 KB. There is no clock and no goroutine here. Times are Unix
// milliseconds of one clock, the database's, and are given to each call.
//
// [State.Admit] takes candidates from a line and reserves what each needs before it is called.
// [State.Feedback] takes in what the call told: its headers, its refusal, its failure, its use. A
// reservation is never refunded because a process died. It ages out of the window after 60
// seconds, when the provider has forgotten the call as well.
//
// Each provider, endpoint and model that is configured under a name has one row with its state
// ([State.MarshalBinary]). Whoever decides reads the row, decides for a batch of jobs, takes in
// what calls told, and writes it back in the same transaction. So all processes share one
// admission. A job that may not go is not locked and loses no delivery. Deciding costs 0.2 µs a
// call. Reading and writing the state costs 9 µs a transaction.
//
// # Where the rules come from
//
//   - What a call is charged at admission, per provider ([Accounting]). Azure OpenAI, "Manage
//     quota": the prompt estimated by characters, plus max_tokens; the counter is reset each
//     minute, and failures count. Azure OpenAI, "Provisioned throughput": a leaky bucket,
//     corrected at completion, cached tokens subtracted. OpenAI, "Rate limits": the larger of
//     max_tokens and the estimate. Anthropic, "Rate limits": input and output tokens as
//     continuously refilled buckets, cache reads free.
//   - Pace is GCRA, the leaky bucket as a meter (ITU-T I.371, annex A).
//   - The limit falls by a factor and grows by steps, as TCP's congestion window does (RFC 5681).
//     The steps become longer while nothing is refused.
//   - The breaker counts failures among the latest calls, opens for growing times and lets probes
//     through (Nygard, "Release It!", ch. 5; the half-open state as in Hystrix).
//   - Backfill is EASY (Lifka, "The ANL/IBM SP scheduling system", 1995).
//
// Makespan alone does not tell strategies apart. The tests measure the ratio to the bound, the
// share of refused calls, and tokens charged for nothing, against simulated providers of each
// kind.
//
// # Charges
//
// The charge is the provider's. Azure OpenAI takes prompt and max output, without refund. OpenAI
// takes the larger of both. Azure PTU and Anthropic settle by real use when the call ends.
// Anthropic has a budget of its own for output.
//
// Our count of a prompt is corrected by κ. σ is how far single prompts are from it, and gives the
// margin. κ has two factors. The use that answers report tells how large a source's prompts
// really are. Headers tell how the charge differs from that use. A source is a tenant's jobs of
// one task, kept as a digest. The 12 newest are kept. What one source is like changes nothing for
// another that is known.
//
// A single call's charge is learned from runs of up to 24 calls made one after the other. What
// was left after each tells in which order the provider saw them. So the charge of each is the
// difference to the one before it. Others' calls only ever add. So the shortest interval that
// holds half of the newest 48 samples counts. Nothing is learned where samples disagree.
//
// A request may name no max output. Then 4,096 tokens are reserved until headers of 8 calls have
// told what the provider counts. With Azure PTU, which settles, the 95th percentile of what the
// source's answers took is reserved.
//
// Without headers as well, nothing tells that a guess is too high. Only a refusal tells that it
// is too low. After 8 answers without headers the guess is the least: 16 tokens beside the
// prompt. After a refusal that comes long before a minute's end it is the mean of the answers.
// After another one it is their 95th percentile. Each guess lasts a minute at least. Calls that
// end count as what is guessed by then. After ten minutes without a refusal on tokens the guess
// before is tried again.
//
// # Window, headers and pace
//
// The window admits never more than the limit in any 60 seconds, in slices of a quarter of a
// second. That fits a fixed minute of unknown phase and a rolling one alike.
//
// Headers count for more than the window while they are not older than five seconds, or up to the
// reset that they name. What they say is left is lowered by what was sent since, and by what may
// have overtaken their call. A margin of at most 1 % of the quota is taken off too. It grows when
// headers turn out to have said too much. What remains of requests in a slice of seconds is not
// used.
//
// Headers may show more to be counted than the window holds. Other programs have used it, or
// calls made before κ was known. That is taken from the window until the reset. Where less is
// configured than the provider has, others may use the rest first.
//
// Others' share of the quota is what two headers within one window of the provider differ by,
// less what was reserved between their calls. Where the window slides it is what the provider
// counts and we have not sent. From 3 % of the quota on, it is taken with 2 σ from what headers
// said. They then hold until their reset.
//
// The pace is 1.25 times the limit with a burst of five seconds, and looks at no call's size.
// That is enough to catch up within a minute. It is too slow to fill a provider's shorter window
// in one burst. A refusal before the minute's worth was sent lowers the pace and not the limit,
// if it asks for ten seconds at most. That provider counts over a shorter time. After a pause
// calls go on one by one.
//
// In three cases one call asks first. Headers are old and most of the window is used, tokens were
// refused, or there was no call for a minute. In the last case two go. The others follow when it
// is heard of, or after 3 s (1.5 s in the last case). So a window that others have used costs one
// refusal and not a burst of them. The same holds where calls left later than they seemed to.
//
// # Sliding windows
//
// The window is rolling or a bucket where the reset that headers name moves with time. It also is
// where Retry-After is much shorter than the reset. What others have used is then forgotten by
// and by. Until the next header a quarter of an even rate is assumed, for they may go on. While
// the kind of window is not known, one call asks every five seconds.
//
// Where resets stay, what others have used counts until then. Only our calls since the provider's
// window began are taken from it.
//
// Two headers tell how fast others' use changes. For three seconds that is taken to go on. A
// rolling window that forgets each call after a minute is recognised. What is left then grows by
// our calls that leave it. After a burst has left, one call asks.
//
// # Requests by the second
//
// Azure evaluates requests over 1 or 10 seconds. So there at most half a second's worth goes at
// once. A refusal that names its wait to the millisecond tells when the next window begins. Its
// own call tells how long a call takes to arrive. For ten minutes each window then gets its calls
// at its beginning, when others have had no time to fill it.
//
// When calls that came so are refused, others were there. One call less then goes in each window.
// One more goes after two minutes, the next time after four and so on.
//
// A refusal on requests without such a wait cuts the burst to 20 ms. It cuts the pace by 1 %,
// later by 2 % each, and by 6 to 12 % where others call as well. The pace grows again by 1 % in
// 30 s. Where tokens are scarcer, requests then go at most twice as fast as tokens allow.
//
// Headers of a second's requests tell the same without a refusal. Where more is left than before,
// a second began in between. Where less is left than our calls account for, others called. A call
// late in a second goes when others are less than 0.6 % likely to have filled it by then.
//
// # Refusals
//
// A refusal (429) pauses everybody until the time that it names, but for an hour at most. One that
// asks for an hour or more may be of a call larger than the deployment. Then nobody else waits. It
// is not where requests are used up or alone are counted, nor where headers tell of a limit twice
// as large as the call. Where no limit tells, nobody knows. Then three in a row open the breaker,
// as calls do that are turned away and may be at fault themselves, but not while others go well.
//
// The refused call is given back. If the first call after a pause was refused too, it is not: then
// refused calls seem to be counted, and pauses double.
//
// At most once in 15 seconds the limit falls: to max(0.2 Q, 0.7 L, 0.98 · min(L, reserved +
// refused)). L is the limit and Q the quota. It does not where the refusal's headers say that
// less was left than the call needs. After 20 quiet seconds it grows by 1 % of Q each 10 seconds.
// Each step is half as long again as the last. A limit in headers is followed at once, up to what
// is configured.
//
// # Backfill
//
// What the first job that does not fit needs is set aside for the time at which the window will
// have it. Of the next 64 those go that take nothing of that, by the window and by the pace.
// Nothing is set aside for a job larger than the whole limit, nor across lanes. Nobody is passed
// over for more than 45 seconds. Then what frees up is kept for it.
//
// A job larger than the whole limit goes to a deployment of its route that is large enough. Where
// none is, it goes when nothing was reserved for a minute. It would wait for ever otherwise.
//
// Other jobs of the lane do not wait behind those that are held. Within a lane each tenant and
// priority has a flow for each class of what its jobs call. A class is a hash of the model or
// function; nothing is a class too. A scan reads the beginning of each flow. Only what calls the
// same waits behind a job that may not go. So a backlog of any length in front of a used-up
// deployment costs a scan a few hundred rows.
//
// There are 63 classes, and a task's model may change. So what calls something else may stand
// behind a job that may not go. A backfill scan of the flow finds it, 1,000 messages at a time.
//
// # The breaker
//
// The breaker looks at the latest 60 calls in the order in which they began. It opens by a row of
// at least 10 in which those that failed outnumber the others by 6. Calls not heard of yet are
// among the others. So it does not matter how many went well before, nor that those still do that
// began before, nor that failures come sooner than successes. Where most calls fail it takes some
// 10 failures at any rate of calls. Where a fifth fails it happens once in 20,000.
//
// Once failures outnumber all calls begun since, the cheapest job goes first. So finding out
// costs few tokens.
//
// Failures that took more than 20 s, as timeouts do, tell of a time that is over. They open the
// breaker if less than half of at least 10 calls heard of in 20 s went well. They also do if 10
// in a row failed. More than 60 calls may begin until a failure is heard of. Then the first rule
// holds once ten seconds were seen.
//
// It is open for half a second at first, for many jobs at fault may just have come at once. Then
// it is open for 2 s · 1.5ⁿ ± 20 %. That is at most 10 s in the first five minutes of an
// outage, later 30 s. So a short outage is over soon after it ends. Then one job tries at a time.
// Three in a row that reach their first token close it, and calls that began before say nothing
// more. Another follows a probe that nobody hears of for ten seconds.
//
// # Jobs that always fail
//
// Jobs that always fail must not look like an outage. A job that fails again while others go well
// says nothing about the deployment. Jobs that have not failed yet probe first, by turns the
// cheapest and one drawn from a tenant that is drawn. Once a call has gone well since the outage
// began, any may be the next. The breaker then opens for 2 s only, and for a minute after it
// closed jobs go in no order.
//
// The first three times, while the outage is less than ten seconds old, the breaker opens for
// half a second to two seconds only. Three jobs then probe at once, which stand far apart in the
// line. Each that goes well makes room for one more. The breaker opens again when as many failed
// as there was room for.
//
// Calls may have gone well and others failed before it opened. Then a call that was under way and
// goes well ends the pause and counts as a probe. Right after some calls went well it takes a
// lead of 20 failures to open it. Later one probes at a time again, so that a brown-out costs
// little.
//
// A repeated failure does not open it again. Such jobs probe a second apart, so that they end.
// The same is done from the beginning where only repeated failures bring an outage about, or
// calls that failed after later ones had gone well.
//
// # Failures of one tenant
//
// Failures of one tenant alone keep nobody else away. They do not open the breaker while another
// tenant's call went well that began in the last 20 s, after the first began to fail. The
// tenant's jobs fail by themselves, within their attempts. Once a call of another tenant fails,
// ten more failures open it. In an outage where one failing tenant alone calls it so opens up to
// 20 s later.
//
// While the breaker is open for other reasons, such a tenant's jobs do not probe if others wait.
// A failed probe of theirs says nothing. Before a call of another tenant has gone well, nobody
// knows whose fault it is, and the breaker opens as usual. Two tenants that act together are not
// told from an outage.
//
// # Deployments that turn every call away
//
// A deployment may turn every call away, for its key, its account or its name. One such answer
// opens the breaker for a minute, then two, up to fifteen. One success closes it. The call is not
// made again to that deployment while it says so. But that says nothing of the job, which goes
// back uncharged. A job alone with such a deployment waits: a revoked key must not dead-letter a
// backlog.
//
// A refusal may be the request's own fault, such as a firewall's 403, or a 402 for its max
// output. It fails its job, until there were three without a success in between. It does not if
// the breaker is not closed, or was not since the call began. What fails may turn calls away as
// well.
//
// While the latest refusal is in doubt the times between probes do not grow. Probes cost nothing,
// and other tenants' jobs may be all right. Each probe is by another job, and every other one by
// the job that fair share has first. So a job refused for itself does not keep the deployment
// closed to all. A job that is the first to be turned away time after time fails in the end. That
// takes ten calls that cost it nothing, or three in doubt.
//
// One tenant's refusals in doubt may be its own fault. So after one of them another tenant's job
// probes, if one waits. If another's call has gone well since the first, within a minute, they
// close the deployment for 2 s only, then 4, up to a minute.
//
// A start of a server has one call try at once. Whether its key is another is not compared, for
// no digest of it is stored.
//
// # Routes
//
// A job has a list of deployments in the order of its model's route. The order is as configured,
// drawn by weight, by estimated price, or by this process's measured latency. In each round all
// that wait try their first, then those that are left their second. The next whose reservation
// succeeds has the job. What nobody admits stays where it is.
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
	// AccountAzurePTU charges prompt + max output at admission and corrects it at completion,
	// without cached tokens.
	AccountAzurePTU
	// AccountOpenAI charges the larger of prompt and max output at admission and never settles.
	AccountOpenAI
	// AccountAnthropic charges the prompt, corrected at completion. The real output is charged in
	// a budget of its own.
	AccountAnthropic
)

// Limits is the configuration of one deployment. A limit of 0 is unknown: it is then learned from
// headers and refusals alone. A limit that is set is kept even where the provider would allow
// more.
type Limits struct {
	Accounting            Accounting
	TokensPerMinute       int64 // Anthropic: input tokens
	OutputTokensPerMinute int64 // Anthropic only
	RequestsPerMinute     int64
	// DefaultMaxOutputTokens is what requests name that set none. 0: they name none, and 4,096 are
	// assumed until it is learned what is counted.
	DefaultMaxOutputTokens int64
}

// perMinute are the limits of each dimension.
func (l Limits) perMinute() Amount {
	return Amount{l.TokensPerMinute, l.RequestsPerMinute, l.OutputTokensPerMinute}
}

// Request is what a call is expected to need.
type Request struct {
	PromptTokens int64 // an estimate: bytes/4 of the prompt with its template
	// MaxOutputTokens is of all completions asked for together. 0: the deployment's default; < 0:
	// there is no output, as of embeddings.
	MaxOutputTokens int64
	// Source tells whose calls these are and of what kind, such as by a digest of tenant and
	// task. What prompts and answers of one source are like says nothing of another's. 0: not
	// said.
	Source int64
	// Unnamed: the request itself names no max output, so that MaxOutputTokens is an assumption.
	// Reserving sets it.
	Unnamed bool
}

// Dimension is one thing that a provider limits.
type Dimension uint8

const (
	Tokens Dimension = iota // prompt and output, or the input where output counts apart
	Requests
	OutputTokens // where output counts apart
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
	// Unwell: so many of the deployment's calls failed lately that another failure tells little
	// about its job.
	Unwell bool
	Again  bool  // a call of its job had failed before
	Tenant int64 // whose job it is; 0: not said
	// Mixed: some calls have gone well since the outage began, or what looks like one. So a probe
	// that fails may be its job's own fault.
	Mixed bool
	// Spent are running totals of the deployment, against which headers are read. They hold this
	// call and those that are certain to reach the provider before it.
	Spent Amount
	// Left are the tokens that had left the window by then, a running total of the deployment.
	Left int64
	// Total are the tokens reserved ever, this call's included.
	Total int64
}

// Verdict says whether a call was admitted, and if not, why and until when.
type Verdict struct {
	Reason forebay.WaitReason // empty: admitted. WaitQuota, WaitBreaker or WaitPaused
	// RetryAt is when asking again is worth it, unless feedback comes before. 0: when somebody
	// resumes it.
	RetryAt int64
	// Smaller is set when a smaller call might be admitted now.
	Smaller bool
}

// Admitted reports whether the call may go.
func (v Verdict) Admitted() bool { return v.Reason == "" }

// OutcomeKind is what became of a call.
type OutcomeKind uint8

const (
	// HeadersArrived: the call goes on. It was accepted: its first token or its headers are here.
	HeadersArrived OutcomeKind = iota
	Succeeded
	Throttled         // 429 that does not say on what
	ThrottledTokens   // 429 on tokens
	ThrottledRequests // 429 on requests
	// Oversize is a 429 because this one request is larger than the deployment: no pause.
	Oversize
	Transient // 5xx, 408, 529, no connection, a timeout, a broken stream
	// Denied: the deployment turned the call away as it would any other, or perhaps: see [Denial].
	Denied
	// Permanent is the request's own fault, or the caller gave up. It says nothing about the
	// deployment.
	Permanent
	NotSent // nothing was sent: everything is given back
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
	// Denial is why a call was denied. Unless it is Certain that any call would have been, it may
	// be the call's own fault.
	Denial     Denial
	Certain    bool
	RetryAfter time.Duration // of a 429; 0: not said
	Usage      Usage         // of a call that succeeded; zero: unknown
	Headers    Headers
}

// Usage is what a call really used. Cached tokens are part of the prompt's.
type Usage struct{ PromptTokens, CachedTokens, OutputTokens int64 }

// Headers are the rate-limit headers of one answer. Values of 0 and below are "not said": some
// APIs send 0 or -1 for what they do not count.
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
