package quota_test

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// half is the Random of tests in which chance does not matter.
func half() float64 { return 0.5 }

// call reserves for a call that must be admitted.
func call(t *testing.T, s *quota.State, now int64, l quota.Limits, r quota.Request) quota.Reservation {
	t.Helper()
	res, v := s.Reserve(now, l, r)
	if !v.Admitted() {
		t.Fatalf("not admitted at %d ms: %+v", now-epoch, v)
	}
	return res
}

func kinds(changes []quota.Change) (kinds []quota.ChangeKind) {
	for _, c := range changes {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}

func TestCharges(t *testing.T) {
	r := quota.Request{PromptTokens: 1000, MaxOutputTokens: 300}
	for _, c := range []struct {
		accounting quota.Accounting
		request    quota.Request
		want       quota.Amount
	}{
		{quota.AccountAzureOpenAI, r, quota.Amount{quota.Tokens: 1300, quota.Requests: 1}},
		{quota.AccountAzurePTU, r, quota.Amount{quota.Tokens: 1300, quota.Requests: 1}},
		{quota.AccountOpenAI, r, quota.Amount{quota.Tokens: 1000, quota.Requests: 1}},
		{quota.AccountOpenAI, quota.Request{PromptTokens: 10, MaxOutputTokens: 300}, quota.Amount{quota.Tokens: 300, quota.Requests: 1}},
		{quota.AccountAnthropic, r, quota.Amount{quota.Tokens: 1000, quota.Requests: 1, quota.OutputTokens: 300}},
		{quota.AccountNone, r, quota.Amount{quota.Requests: 1}},
		{quota.AccountAzureOpenAI, quota.Request{PromptTokens: 10, MaxOutputTokens: -1}, quota.Amount{quota.Tokens: 10, quota.Requests: 1}},
		{quota.AccountAzureOpenAI, quota.Request{PromptTokens: 10}, quota.Amount{quota.Tokens: 10 + 4096, quota.Requests: 1}},
	} {
		var s quota.State
		if got := call(t, &s, epoch, quota.Limits{Accounting: c.accounting}, c.request).Amount; got != c.want {
			t.Errorf("accounting %d, %+v: reserved %v, want %v", c.accounting, c.request, got, c.want)
		}
	}
}

func TestSettlement(t *testing.T) {
	usage := quota.Usage{PromptTokens: 900, CachedTokens: 400, OutputTokens: 100}
	for accounting, want := range map[quota.Accounting]quota.Amount{
		quota.AccountAzureOpenAI: {quota.Tokens: 1300, quota.Requests: 1},
		quota.AccountOpenAI:      {quota.Tokens: 1000, quota.Requests: 1},
		quota.AccountAzurePTU:    {quota.Tokens: 600, quota.Requests: 1},
		quota.AccountAnthropic:   {quota.Tokens: 500, quota.Requests: 1, quota.OutputTokens: 100},
	} {
		var s quota.State
		l := quota.Limits{Accounting: accounting, TokensPerMinute: 10_000}
		r := call(t, &s, epoch, l, quota.Request{PromptTokens: 1000, MaxOutputTokens: 300})
		if st := s.Status(epoch+10, l); st.InFlight != 1 {
			t.Errorf("%d calls in flight", st.InFlight)
		}
		s.Feedback(epoch+5000, l, r, quota.Outcome{Kind: quota.Succeeded, Usage: usage}, half)
		if st := s.Status(epoch+5000, l); st.Used != want || st.InFlight != 0 {
			t.Errorf("accounting %d: used %v, want %v; %d in flight", accounting, st.Used, want, st.InFlight)
		}
		s.Feedback(epoch+70_000, l, r, quota.Outcome{Kind: quota.NotSent}, half)
		if st := s.Status(epoch+70_000, l); st.Used != (quota.Amount{}) {
			t.Errorf("accounting %d: used %v after its minute", accounting, st.Used)
		}
	}
}

func TestGivesBack(t *testing.T) {
	for _, kind := range []quota.OutcomeKind{quota.NotSent, quota.Oversize, quota.ThrottledTokens} {
		var s quota.State
		r := call(t, &s, epoch, azureLimits, quota.Request{PromptTokens: 9000, MaxOutputTokens: 1000})
		s.Feedback(epoch+100, azureLimits, r, quota.Outcome{Kind: kind, RetryAfter: time.Second}, half)
		if st := s.Status(epoch+100, azureLimits); st.Used != (quota.Amount{}) {
			t.Errorf("outcome %d: %v still reserved", kind, st.Used)
		}
	}
	// What failed was charged all the same.
	for _, kind := range []quota.OutcomeKind{quota.Transient, quota.Permanent} {
		var s quota.State
		r := call(t, &s, epoch, azureLimits, quota.Request{PromptTokens: 9000, MaxOutputTokens: 1000})
		s.Feedback(epoch+100, azureLimits, r, quota.Outcome{Kind: kind}, half)
		if st := s.Status(epoch+100, azureLimits); st.Used[quota.Tokens] != 10_000 {
			t.Errorf("outcome %d: %v reserved", kind, st.Used)
		}
	}
}

func TestRefusalPausesAndLowersTheLimit(t *testing.T) {
	var s quota.State
	first := call(t, &s, epoch, azureLimits, quota.Request{PromptTokens: 9000, MaxOutputTokens: 1000})
	second := call(t, &s, epoch+10, azureLimits, quota.Request{PromptTokens: 9000, MaxOutputTokens: 1000})
	o := quota.Outcome{Kind: quota.ThrottledTokens, RetryAfter: 30 * time.Second}
	s.Feedback(epoch+100, azureLimits, first, o, half)
	s.Feedback(epoch+110, azureLimits, second, o, half)
	if got := kinds(s.Changes()); len(got) != 2 || got[0] != quota.Paused || got[1] != quota.LimitLowered {
		t.Errorf("changes %v", got)
	}
	if st := s.Status(epoch+200, azureLimits); st.Limit[quota.Tokens] != tpm*7/10 || st.Counts.Throttled != 2 {
		t.Errorf("two refusals of one moment: %+v", st)
	}
	_, v := s.Reserve(epoch+200, azureLimits, quota.Request{PromptTokens: 10})
	if v.Reason != forebay.WaitQuota || v.RetryAt < epoch+30_100 || v.RetryAt > epoch+31_000 {
		t.Errorf("while paused: %+v", v)
	}
	call(t, &s, v.RetryAt, azureLimits, quota.Request{PromptTokens: 10})
	// It grows back, slowly at first, and people are told when it is whole again.
	slow := s.Status(epoch+35_000, azureLimits).Limit[quota.Tokens]
	if slow < tpm*7/10 || slow > tpm*73/100 {
		t.Errorf("limit %d after 35 s", slow)
	}
	if st := s.Status(epoch+180_000, azureLimits); st.Limit[quota.Tokens] != tpm {
		t.Errorf("limit %d after three minutes", st.Limit[quota.Tokens])
	}
	if got := kinds(s.Changes()); len(got) != 1 || got[0] != quota.LimitRestored {
		t.Errorf("changes %v", got)
	}
}

// A provider that refuses the first call after each pause counts refused calls. They stay
// reserved, and pauses become longer than it asks for until a call goes well.
func TestRefusalsInARow(t *testing.T) {
	var s quota.State
	now := int64(epoch)
	refused := func(used int64) (pause int64) {
		t.Helper()
		r := call(t, &s, now, azureLimits, quota.Request{PromptTokens: 900, MaxOutputTokens: 100})
		s.Feedback(now+100, azureLimits, r, quota.Outcome{Kind: quota.ThrottledTokens, RetryAfter: 500 * time.Millisecond}, half)
		st := s.Status(now+100, azureLimits)
		if st.Used[quota.Tokens] != used {
			t.Errorf("%d tokens reserved, want %d", st.Used[quota.Tokens], used)
		}
		pause = st.PausedUntil - now - 100
		now = st.PausedUntil
		return pause
	}
	if first, second, third := refused(0), refused(1000), refused(2000); first > 1000 || second < 4000 || third < 8000 {
		t.Errorf("pauses of %d, %d and %d ms", first, second, third)
	}
	r := call(t, &s, now, azureLimits, quota.Request{PromptTokens: 900, MaxOutputTokens: 100})
	s.Feedback(now+100, azureLimits, r, quota.Outcome{Kind: quota.HeadersArrived}, half)
	now += 1000
	if again := refused(3000); again > 1000 {
		t.Errorf("a pause of %d ms after a call that went well", again)
	}
}

func TestRefusalOnRequestsKeepsTheLimit(t *testing.T) {
	var s quota.State
	r := call(t, &s, epoch, azureLimits, quota.Request{PromptTokens: 100})
	s.Feedback(epoch+100, azureLimits, r, quota.Outcome{Kind: quota.ThrottledRequests, RetryAfter: time.Second}, half)
	if st := s.Status(epoch+100, azureLimits); st.Limit[quota.Tokens] != tpm || st.PausedUntil == 0 {
		t.Errorf("%+v", st)
	}
}

// A pause of any length is stored. It is an hour at most, after which calls find out.
func TestLongPauses(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{
		59 * time.Minute: 59 * time.Minute, time.Hour: time.Hour, 2 * time.Hour: time.Hour, 24 * time.Hour: time.Hour, 7 * 24 * time.Hour: time.Hour,
	} {
		s := new(quota.State)
		r := call(t, s, epoch, azureLimits, quota.Request{PromptTokens: 100})
		s.Feedback(epoch+100, azureLimits, r, quota.Outcome{Kind: quota.ThrottledRequests, RetryAfter: wait}, half)
		s = reload(t, s)
		paused := s.Status(epoch+100, azureLimits).PausedUntil - epoch - 100
		if more := paused - want.Milliseconds(); more < 0 || more > 1000 {
			t.Errorf("a wait of %v: a pause of %d ms", wait, paused)
		}
		call(t, s, epoch+100+paused, azureLimits, quota.Request{PromptTokens: 100})
	}
}

// One request that is larger than the deployment is answered with "retry after 86400 seconds";
// that is its own lot.
func TestOversizeAnswerIsNoPause(t *testing.T) {
	var s quota.State
	r := call(t, &s, epoch, azureLimits, quota.Request{PromptTokens: 500_000})
	s.Feedback(epoch+100, azureLimits, r, quota.Outcome{Kind: quota.Throttled, RetryAfter: 86400 * time.Second}, half)
	st := s.Status(epoch+100, azureLimits)
	if st.PausedUntil != 0 || st.Limit[quota.Tokens] != tpm || st.Counts.Oversize != 1 {
		t.Errorf("%+v", st)
	}
	call(t, &s, epoch+61_000, azureLimits, quota.Request{PromptTokens: 100})
}

func TestOversizeRequestGoesAloneAndAtLast(t *testing.T) {
	var s quota.State
	call(t, &s, epoch, azureLimits, quota.Request{PromptTokens: 100, MaxOutputTokens: 100})
	large := quota.Request{PromptTokens: 300_000, MaxOutputTokens: 100}
	_, v := s.Reserve(epoch+1000, azureLimits, large)
	if v.Admitted() || !v.Smaller || v.RetryAt < epoch+60_000 || v.RetryAt > epoch+60_500 {
		t.Fatalf("while another was sent: %+v", v)
	}
	call(t, &s, v.RetryAt, azureLimits, large)
	_, v = s.Reserve(v.RetryAt+10_000, azureLimits, quota.Request{PromptTokens: 100})
	if v.Admitted() {
		t.Error("another went within its minute")
	}
}

func TestHeaders(t *testing.T) {
	l := azureLimits
	ask := quota.Request{PromptTokens: 500, MaxOutputTokens: 500}
	told := func(h quota.Headers) (*quota.State, int64) {
		var s quota.State
		r := call(t, &s, epoch, l, ask)
		s.Feedback(epoch+500, l, r, quota.Outcome{Kind: quota.HeadersArrived, Headers: h}, half)
		return &s, epoch + 1000
	}
	// The provider's word on what is left holds for five seconds.
	s, now := told(quota.Headers{Limit: quota.Amount{tpm}, Remaining: quota.Amount{1700}})
	if _, v := s.Reserve(now, l, quota.Request{PromptTokens: 1000, MaxOutputTokens: 1000}); v.Admitted() || !v.Smaller || v.RetryAt != epoch+5001 {
		t.Errorf("2,000 tokens where 1,700 are left: %+v", v)
	}
	call(t, s, now, l, quota.Request{PromptTokens: 100, MaxOutputTokens: 500})
	if _, v := s.Reserve(now, l, quota.Request{PromptTokens: 100, MaxOutputTokens: 900}); v.Admitted() {
		t.Error("what was sent after the header was not subtracted")
	}
	call(t, s, epoch+5001, l, quota.Request{PromptTokens: 1000, MaxOutputTokens: 1000})

	// Where it says when that is renewed, the word holds no longer, or until then.
	s, _ = told(quota.Headers{Limit: quota.Amount{tpm}, Remaining: quota.Amount{1}, Reset: [3]time.Duration{2 * time.Second}})
	if _, v := s.Reserve(epoch+2000, l, ask); v.Admitted() {
		t.Error("admitted before the reset")
	}
	call(t, s, epoch+2600, l, ask)

	// A smaller limit is followed at once, and so is its return; a larger one than configured is not.
	s, now = told(quota.Headers{Limit: quota.Amount{tpm / 2}, Remaining: quota.Amount{tpm / 4}})
	if got := s.Status(now, l).Limit[quota.Tokens]; got != tpm/2 {
		t.Errorf("limit %d, told %d", got, tpm/2)
	}
	r := call(t, s, now+2000, l, ask)
	s.Feedback(now+3000, l, r, quota.Outcome{Kind: quota.HeadersArrived, Headers: quota.Headers{Limit: quota.Amount{tpm * 2}}}, half)
	if got := s.Status(now+3000, l).Limit[quota.Tokens]; got != tpm {
		t.Errorf("limit %d, told %d", got, tpm*2)
	}
	if got := kinds(s.Changes()); len(got) != 2 || got[0] != quota.LimitLowered || got[1] != quota.LimitRestored {
		t.Errorf("changes %v", got)
	}

	// Values that some APIs send for "not counted" are not believed.
	for _, h := range []quota.Headers{
		{}, {Limit: quota.Amount{-1, -1, -1}, Remaining: quota.Amount{-1, -1, -1}},
		{Limit: quota.Amount{tpm}, Remaining: quota.Amount{0}}, {Limit: quota.Amount{100}, Remaining: quota.Amount{5000}, Reset: [3]time.Duration{-1}},
	} {
		s, now := told(h)
		if h.Limit[quota.Tokens] == 100 {
			continue // its limit is; its remaining is not
		}
		call(t, s, now, l, quota.Request{PromptTokens: 10_000})
	}
}

func TestUnknownLimitsAreLearned(t *testing.T) {
	l := quota.Limits{Accounting: quota.AccountOpenAI}
	// 100,000 tokens in five seconds, then a refusal that asks to wait for so long.
	refused := func(s *quota.State, now int64, wait time.Duration) (limit, later int64) {
		t.Helper()
		var last quota.Reservation
		for range 50 {
			last = call(t, s, now, l, quota.Request{PromptTokens: 2000, MaxOutputTokens: 10})
			now += 100
		}
		s.Feedback(now, l, last, quota.Outcome{Kind: quota.Throttled, RetryAfter: wait}, half)
		return s.Status(now, l).Limit[quota.Tokens], now
	}
	var s quota.State
	limit, now := refused(&s, epoch, 30*time.Second)
	if limit < 90_000 || limit > 100_000 {
		t.Errorf("limit %d after a minute's quota was refused at 100,000", limit)
	}
	if got := s.Status(now+11*60_000, l).Limit[quota.Tokens]; got != 0 {
		t.Errorf("limit %d long after", got)
	}

	// A wait of a moment is of a rate, and the first one may mean nothing.
	s = quota.State{}
	if limit, now = refused(&s, epoch, 200*time.Millisecond); limit != 0 {
		t.Errorf("limit %d after one short refusal", limit)
	}
	if limit, _ = refused(&s, now+15_000, 200*time.Millisecond); limit < 440_000 || limit > 500_000 {
		t.Errorf("limit %d after refusals at 200,000 in 25 seconds", limit)
	}
}

// When a call is refused after more than a minute, nobody knows any more what was used when it was
// made. So no limit follows of it.
func TestNoLimitFollowsOfASlowRefusal(t *testing.T) {
	l := quota.Limits{Accounting: quota.AccountOpenAI}
	for _, waits := range [][]time.Duration{{0}, {10 * time.Second}, {time.Second, time.Second}, {30 * time.Second}, {0, 0, 0}} {
		var s quota.State
		now := int64(epoch)
		made := make([]quota.Reservation, len(waits))
		for i := range made {
			made[i] = call(t, &s, now, l, quota.Request{PromptTokens: 2000, MaxOutputTokens: 10})
		}
		now += 65_000
		for i, r := range made {
			s.Feedback(now, l, r, quota.Outcome{Kind: quota.ThrottledTokens, RetryAfter: waits[i]}, half)
			if st := s.Status(now, l); st.Limit[quota.Tokens] != 0 || st.PausedUntil <= now {
				t.Errorf("waits of %v: a limit of %d, paused until %d", waits, st.Limit[quota.Tokens], st.PausedUntil-now)
			}
			now += 20_000
		}
		reload(t, &s)
	}
}

func TestBreaker(t *testing.T) {
	var s quota.State
	l := quota.Limits{RequestsPerMinute: 6000}
	now := int64(epoch)
	fail := func(kind quota.OutcomeKind) quota.Reservation {
		t.Helper()
		r := call(t, &s, now, l, quota.Request{})
		s.Feedback(now+10, l, r, quota.Outcome{Kind: kind}, half)
		now += 100
		return r
	}
	for range 9 {
		fail(quota.Transient)
	}
	fail(quota.Permanent) // says nothing
	if st := s.Status(now, l); st.Breaker != quota.Closed {
		t.Fatal("open after nine")
	}
	fail(quota.Transient)
	st := s.Status(now, l)
	if _, v := s.Reserve(now, l, quota.Request{}); st.Breaker != quota.Open || v.Reason != forebay.WaitBreaker || v.RetryAt != st.BreakerUntil {
		t.Fatalf("%+v %+v", st, v)
	}
	if d := st.BreakerUntil - now; d < 300 || d > 600 {
		t.Errorf("open for %d ms", d)
	}
	now = st.BreakerUntil
	for range 3 { // the jobs may be at fault
		if !call(t, &s, now, l, quota.Request{}).Probe {
			t.Fatal("not a probe")
		}
	}
	if _, v := s.Reserve(now+9_999, l, quota.Request{}); v.Reason != forebay.WaitBreaker {
		t.Fatal("four probes")
	}
	now += 10_000 // its process died
	fail(quota.Transient)
	if st = s.Status(now, l); st.Breaker != quota.Open {
		t.Fatal("a failed probe did not open it again")
	}
	now = st.BreakerUntil
	fail(quota.ThrottledRequests) // it answers; when paused it is asked later
	now += 3000
	fail(quota.Succeeded)
	fail(quota.HeadersArrived)
	s.Changes()
	if fail(quota.Succeeded); s.Status(now, l).Breaker != quota.Closed {
		t.Fatal("not closed after three probes that went well")
	}
	if got := kinds(s.Changes()); len(got) != 1 || got[0] != quota.BreakerClosed {
		t.Errorf("changes %v", got)
	}
	// Rare calls open it as well, when ten in a row failed.
	for range 9 {
		fail(quota.Transient)
		now += 30_000
	}
	if fail(quota.Transient); s.Status(now, l).Breaker != quota.Open {
		t.Error("ten rare failures in a row")
	}
}

func TestOperatorPause(t *testing.T) {
	var s quota.State
	s.Pause()
	if _, v := s.Reserve(epoch, azureLimits, quota.Request{}); v.Reason != forebay.WaitPaused || v.RetryAt != 0 {
		t.Errorf("%+v", v)
	}
	back := reload(t, &s)
	if !back.Status(epoch, azureLimits).Operator {
		t.Error("the pause was not stored")
	}
	back.Resume()
	call(t, back, epoch, azureLimits, quota.Request{})
}

func TestClockSetBack(t *testing.T) {
	var s quota.State
	var last quota.Reservation
	for i := range int64(20) {
		last = call(t, &s, epoch+i*1000, azureLimits, quota.Request{PromptTokens: 1000})
	}
	s.Feedback(epoch+20_000, azureLimits, last, quota.Outcome{Kind: quota.ThrottledTokens, RetryAfter: 10 * time.Second}, half)
	const hour = 3600_000
	if _, v := s.Reserve(epoch-hour, azureLimits, quota.Request{}); v.Admitted() || v.RetryAt > epoch-hour+11_000 {
		t.Errorf("an hour before: %+v", v)
	}
	call(t, &s, epoch-hour+11_000, azureLimits, quota.Request{PromptTokens: 1000})
	reload(t, &s)
	if st := s.Status(epoch-hour+75_000, azureLimits); st.Used != (quota.Amount{}) {
		t.Errorf("%v still reserved", st.Used)
	}
}

func TestDrain(t *testing.T) {
	var s quota.State
	if got := s.Drain(epoch, azureLimits, tpm/100, 10); got > time.Second {
		t.Errorf("what fits now: %v", got)
	}
	if got := s.Drain(epoch, azureLimits, 11*tpm, 100); got < 9*time.Minute || got > 11*time.Minute {
		t.Errorf("eleven minutes' worth: %v", got)
	}
	if got := s.Drain(epoch, azureLimits, 0, 14_400); got < 9*time.Minute || got > 10*time.Minute {
		t.Errorf("ten minutes of requests: %v", got)
	}
	if got := s.Drain(epoch, quota.Limits{}, 1e12, 1e6); got != 0 {
		t.Errorf("without limits: %v", got)
	}
	r := call(t, &s, epoch, azureLimits, quota.Request{PromptTokens: 10})
	s.Feedback(epoch, azureLimits, r, quota.Outcome{Kind: quota.ThrottledRequests, RetryAfter: 40 * time.Second}, half)
	if got := s.Drain(epoch, azureLimits, 10, 1); got < 40*time.Second || got > 41*time.Second {
		t.Errorf("while paused: %v", got)
	}
}

// What the provider counted and the window does not know of is not sent again in its minute. That
// also holds once what headers said is left has become old. It is forgotten when the provider
// begins anew.
func TestUnseenCharges(t *testing.T) {
	const reset = 20 * time.Second
	ask := quota.Request{PromptTokens: 500, MaxOutputTokens: 500}
	var s quota.State
	first := call(t, &s, epoch, azureLimits, ask)
	s.Feedback(epoch+1000, azureLimits, first, quota.Outcome{Kind: quota.HeadersArrived, Headers: quota.Headers{
		Limit: quota.Amount{tpm}, Remaining: quota.Amount{10_000}, Reset: [3]time.Duration{reset}}}, half)
	sent, at := int64(0), int64(0)
	for at = epoch + 1000; at < epoch+1000+reset.Milliseconds(); at += 100 {
		if _, v := s.Reserve(at, azureLimits, ask); v.Admitted() {
			sent += 1000
		} else if v.RetryAt > epoch+1000+reset.Milliseconds()+100 {
			t.Fatalf("at %d ms: %+v", at-epoch, v)
		}
	}
	// One call more may ask whether it still is.
	if sent < 5000 || sent > 11_000 {
		t.Errorf("%d tokens were sent where 10,000 were left", sent)
	}
	call(t, &s, at+100, azureLimits, quota.Request{PromptTokens: 500, MaxOutputTokens: 20_000})
}
