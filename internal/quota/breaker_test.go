package quota_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/forebayhq/forebay/internal/quota"
)

// manyRequests are limits that never hold a call of these tests back.
var manyRequests = quota.Limits{RequestsPerMinute: 60_000}

// begin makes n calls, ten milliseconds after each other from now on.
func begin(t *testing.T, s *quota.State, now int64, n int) (calls []quota.Reservation) {
	t.Helper()
	for i := range n {
		calls = append(calls, call(t, s, now+int64(i)*10, manyRequests, quota.Request{}))
	}
	return calls
}

// end tells at a time how calls ended, by a letter for each: f failed, + went well, anything else
// is not told. It returns how many were told when the breaker was open; 0: it is not.
func end(s *quota.State, now int64, calls []quota.Reservation, how string) (told int) {
	for i, r := range calls {
		switch how[i%len(how)] {
		case 'f':
			s.Feedback(now, manyRequests, r, quota.Outcome{Kind: quota.Transient}, half)
		case '+':
			s.Feedback(now, manyRequests, r, quota.Outcome{Kind: quota.Succeeded}, half)
		}
		if s.Status(now, manyRequests).Breaker == quota.Open {
			return i + 1
		}
	}
	return 0
}

// TestBreakerSeesTheLatestCalls: most calls begin to fail after hundreds that went well. Those
// that were under way still go well. It takes some ten failures, whatever the order in which they
// are heard of.
func TestBreakerSeesTheLatestCalls(t *testing.T) {
	for _, c := range []struct {
		name, how string
		most      int // calls that it may take; 0: it stays closed
	}{
		{"all fail", "f", 10},
		{"seven of ten fail", "ffffff+f++", 18},
		{"seven of ten fail, and the others are not heard of yet", "ff-f-ff-ff", 18},
		{"half fail", "f+", 0},
		{"one of three fails", "f++", 0},
		{"nine fail in a row", "fffffffff+++++++++++", 0},
	} {
		for _, backwards := range []bool{false, true} {
			s := new(quota.State)
			if end(s, epoch+4000, begin(t, s, epoch, 300), "+") != 0 {
				t.Fatal("opened while all went well")
			}
			underWay := begin(t, s, epoch+5000, 60)
			calls := begin(t, s, epoch+6000, 40)
			told := 0
			for i := 0; i < len(calls) && told == 0; i += 20 { // twenty are under way at a time
				group, how := calls[i:i+20], []byte(c.how)
				for len(how) < 20 {
					how = append(how, how[:min(len(c.how), 20-len(how))]...)
				}
				if backwards {
					slices.Reverse(group)
					slices.Reverse(how)
				}
				end(s, epoch+6500, underWay[i:i+20], "+")
				if n := end(s, epoch+6500, group, string(how)); n > 0 {
					told = i + n
				}
				s = reload(t, s)
			}
			if told > c.most || c.most > 0 && told == 0 {
				t.Errorf("%s, backwards %t: open after %d calls; the most is %d", c.name, backwards, told, c.most)
			}
		}
	}
}

// TestBreakerAtAHighRate: a hundred calls a second fail, each after another time of up to five
// seconds. Few of the latest are heard of yet, and still it opens.
func TestBreakerAtAHighRate(t *testing.T) {
	s := new(quota.State)
	end(s, epoch+4000, begin(t, s, epoch, 300), "+")
	type failure struct {
		at int64
		quota.Reservation
	}
	var failures []failure
	for i, r := range begin(t, s, epoch+5000, 500) {
		failures = append(failures, failure{epoch + 5000 + int64(i)*10 + int64(i*1237%5000), r})
	}
	slices.SortFunc(failures, func(a, b failure) int { return cmp.Compare(a.at, b.at) })
	for i, f := range failures {
		if end(s, f.at, []quota.Reservation{f.Reservation}, "f") != 0 {
			if i > 350 { // most of what went well is not older than the window yet
				t.Errorf("open only after %d failures", i)
			}
			return
		}
	}
	t.Error("it never opened")
}

// TestBreakerForgets: calls that began long ago, or before the breaker closed, tell nothing of
// now.
func TestBreakerForgets(t *testing.T) {
	var s quota.State
	end(&s, epoch, begin(t, &s, epoch-4000, 300), "+")
	slow := begin(t, &s, epoch, 12)
	end(&s, epoch+11_000, begin(t, &s, epoch+10_000, 30), "+")
	if end(&s, epoch+20_200, slow, "fffff+ffffff") != 0 {
		t.Error("those that took twenty seconds to fail, and since which others have gone well, opened it")
	}

	s = quota.State{}
	before := begin(t, &s, epoch, 40)
	if end(&s, epoch+1000, before[:20], "f") != 10 {
		t.Fatal("not open after ten failures")
	}
	now := s.Status(epoch+1000, manyRequests).BreakerUntil
	for range 3 {
		end(&s, now+10, begin(t, &s, now, 1), "+")
		now += 100
	}
	if end(&s, now, before[20:], "f") != 0 || s.Status(now, manyRequests).Breaker != quota.Closed {
		t.Error("calls from before it closed opened it again")
	}
	if end(&s, now+500, begin(t, &s, now+100, 20), "f") != 20 {
		t.Error("twenty calls from after it closed did not open it again")
	}
}

// TestCheapestGoesAfterFailures: while the deployment may have broken, the cheapest candidate is
// next. Candidates go in order again when calls have begun since that have not failed.
func TestCheapestGoesAfterFailures(t *testing.T) {
	s := new(quota.State)
	limits := quota.Limits{Accounting: quota.AccountAzureOpenAI, RequestsPerMinute: 60_000}
	line := []quota.Candidate{
		{ID: 1, Request: quota.Request{PromptTokens: 1000}}, {ID: 2, Request: quota.Request{PromptTokens: 10}}, {ID: 3, Request: quota.Request{PromptTokens: 500}},
	}
	end(s, epoch+1000, begin(t, s, epoch, 20), "+")
	now := int64(epoch + 2000)
	for step, c := range []struct {
		fails bool // the call before
		goes  int  // the candidate that does
	}{{false, 0}, {true, 1}, {true, 1}, {false, 1}, {false, 0}, {true, 1}, {false, 0}} {
		if step > 0 {
			kind := quota.HeadersArrived
			if c.fails {
				kind = quota.Transient
			}
			last := call(t, s, now, limits, quota.Request{PromptTokens: 100})
			s.Feedback(now+10, limits, last, quota.Outcome{Kind: kind}, half)
		}
		now += 1000
		decisions := s.Clone().Admit(now, limits, line, 1)
		if !decisions[c.goes].Admitted() {
			t.Errorf("step %d: %+v", step, decisions)
		}
		s = reload(t, s)
	}
}

// TestSlowProbes: an answer may take longer than the time after which a probe is given up. What
// went well late closes the breaker all the same. What is of before it opened does not.
func TestSlowProbes(t *testing.T) {
	var s quota.State
	before := begin(t, &s, epoch, 40)
	if end(&s, epoch+1000, before[:20], "f") != 10 {
		t.Fatal("not open after ten failures")
	}
	now := s.Status(epoch+1000, manyRequests).BreakerUntil
	var probes []quota.Reservation
	for range 3 {
		probes = append(probes, begin(t, &s, now, 1)...)
		now += 61_000
	}
	end(&s, now+30_000, before[20:], "+")
	if st := s.Status(now+30_000, manyRequests); st.Breaker != quota.HalfOpen {
		t.Fatalf("calls from before it opened: %v", st.Breaker)
	}
	for i, want := range []quota.BreakerState{quota.HalfOpen, quota.HalfOpen, quota.Closed} {
		end(&s, now+30_000, probes[i:i+1], "+")
		if st := s.Status(now+30_000, manyRequests); st.Breaker != want {
			t.Errorf("after %d slow probes: %v", i+1, st.Breaker)
		}
	}
}

// TestSlowProbesCountOnce: a probe whose headers came soon and whose end came after it was given
// up is one that went well.
func TestSlowProbesCountOnce(t *testing.T) {
	var s quota.State
	if end(&s, epoch+1000, begin(t, &s, epoch, 20), "f") != 10 {
		t.Fatal("not open after ten failures")
	}
	now := s.Status(epoch+1000, manyRequests).BreakerUntil
	for i, want := range []quota.BreakerState{quota.HalfOpen, quota.HalfOpen, quota.Closed} {
		probe := begin(t, &s, now, 1)
		s.Feedback(now+100, manyRequests, probe[0], quota.Outcome{Kind: quota.HeadersArrived}, half)
		end(&s, now+61_000, probe, "+")
		if st := s.Status(now+61_000, manyRequests); st.Breaker != want {
			t.Fatalf("after %d slow probes: %v; want %v", i+1, st.Breaker, want)
		}
		s = *reload(t, &s)
		now += 62_000
	}
}

// TestUnwell: a call says so when it is made while many fail though the breaker is closed. It
// also does for a minute after the breaker closed. The failures of a few jobs alone do not make
// it so.
func TestUnwell(t *testing.T) {
	unwell := func(s *quota.State, now int64) bool { return begin(t, s, now, 1)[0].Unwell }
	s := new(quota.State)
	end(s, epoch+1000, begin(t, s, epoch, 30), "+f++") // seven failures
	if unwell(s, epoch+2000) {
		t.Error("seven failures are enough")
	}
	end(s, epoch+3000, begin(t, s, epoch+2500, 12), "+f++") // ten
	if !unwell(s, epoch+3500) {
		t.Error("ten failures of 42 calls are not enough")
	}
	end(s, epoch+10_000, begin(t, s, epoch+4000, 60), "+")
	if unwell(s, epoch+11_000) {
		t.Error("sixty calls that went well are not enough")
	}

	// So many begin until a failure is heard of that it is none of the latest.
	s = new(quota.State)
	calls := begin(t, s, epoch, 200)
	end(s, epoch+3000, calls[:60], "+++++f")
	if !unwell(s, epoch+4000) {
		t.Error("ten failures of sixty that were heard of are not enough")
	}
	if unwell(s, epoch+3000+20_000) {
		t.Error("what was heard of twenty seconds ago counts")
	}
	end(s, epoch+4000, calls[60:120], "+")
	if unwell(s, epoch+5000) {
		t.Error("ten failures of 120 are enough")
	}

	s = new(quota.State)
	if end(s, epoch+1000, begin(t, s, epoch, 10), "f") == 0 {
		t.Fatal("the breaker is closed")
	}
	now := epoch + int64(20_000)
	for s.Status(now, manyRequests).Breaker != quota.Closed {
		probe := begin(t, s, now, 1)
		if end(s, now+10, probe, "+"); !probe[0].Probe {
			t.Fatal("no probe")
		}
		now += 100
	}
	if !unwell(s, now+50_000) || unwell(s, now+70_000) {
		t.Error("not unwell for a minute after the breaker closed, or for longer")
	}
}

// TestAnswersUnderWayEndThePause: calls had gone well and others had failed, and jobs at fault
// come at once again. Then the answers to calls that were under way close the breaker. Without
// them it would pause, and then probe.
func TestAnswersUnderWayEndThePause(t *testing.T) {
	var s quota.State
	l := quota.Limits{RequestsPerMinute: 60_000}
	now := int64(epoch)
	fail := func(n int) {
		t.Helper()
		for range n {
			now += 10
			s.Feedback(now, l, call(t, &s, now, l, quota.Request{}), quota.Outcome{Kind: quota.Transient}, half)
		}
	}
	fail(10)
	now = s.Status(now, l).BreakerUntil
	for range 3 {
		s.Feedback(now+100, l, call(t, &s, now, l, quota.Request{}), quota.Outcome{Kind: quota.Succeeded}, half)
	}
	if now += 200; s.Status(now, l).Breaker != quota.Closed {
		t.Fatal("three probes that went well did not close it")
	}
	var underWay []quota.Reservation
	for range 4 {
		underWay = append(underWay, call(t, &s, now, l, quota.Request{}))
	}
	for s.Status(now, l).Breaker == quota.Closed && now < epoch+9000 {
		fail(1)
	}
	if s.Status(now, l).Breaker != quota.Open {
		t.Fatal("many failures in a row did not open it")
	}
	for i, r := range underWay[:3] {
		now += 10
		// The headers of an answer and its end count once.
		s.Feedback(now, l, r, quota.Outcome{Kind: quota.HeadersArrived}, half)
		s.Feedback(now, l, r, quota.Outcome{Kind: quota.Succeeded}, half)
		if got, want := s.Status(now, l).Breaker, [3]quota.BreakerState{quota.HalfOpen, quota.HalfOpen, quota.Closed}[i]; got != want {
			t.Errorf("after %d answers it is %v", i+1, got)
		}
	}
}

// TestProbesAreFarApart: jobs at fault may stand one after the other, so those that probe do not.
func TestProbesAreFarApart(t *testing.T) {
	var s quota.State
	l := quota.Limits{RequestsPerMinute: 60_000}
	now := int64(epoch)
	for range 10 {
		now += 10
		s.Feedback(now, l, call(t, &s, now, l, quota.Request{}), quota.Outcome{Kind: quota.Transient}, half)
	}
	line := make([]quota.Candidate, 80)
	for i := range line {
		line[i].ID = int64(i + 1)
	}
	var probes []int
	for i, d := range s.Admit(s.Status(now, l).BreakerUntil, l, line, 16) {
		if d.Admitted() {
			probes = append(probes, i)
		}
	}
	if len(probes) != 3 || probes[1]-probes[0] < 10 || probes[2]-probes[1] < 10 {
		t.Errorf("probes at %v", probes)
	}
}
