package quota_test

import (
	"encoding/base64"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

const minutes = 60_000 // in milliseconds

// deny tells that a call was turned away, for certain as any other would be or only perhaps.
func deny(s *quota.State, now int64, r quota.Reservation, why quota.Denial, certain bool) {
	s.Feedback(now, manyRequests, r, quota.Outcome{Kind: quota.Denied, Denial: why, Certain: certain}, half)
}

// TestDeniedIsLeftAlone: one answer that the key is no good keeps all calls away. One goes a
// minute later, then two minutes later and so on up to fifteen. The first that succeeds ends it.
func TestDeniedIsLeftAlone(t *testing.T) {
	s, now := new(quota.State), int64(epoch)
	calls := begin(t, s, now, 5)
	end(s, now+100, calls[:1], "+")
	deny(s, now+200, calls[1], quota.Unauthorized, true)
	for _, c := range calls[2:] {
		deny(s, now+200, c, quota.Unauthorized, true)
	}
	now += 200
	for i, want := range []int64{1, 2, 4, 8, 15, 15} {
		s = reload(t, s)
		st := s.Status(now, manyRequests)
		if st.Breaker != quota.Open || st.Denied != quota.Unauthorized || st.BreakerUntil != now+want*minutes {
			t.Fatalf("after %d denials: %+v; until %d minutes later is due", i+1, st, want)
		}
		if !s.Stopped() {
			t.Error("other deployments wait for it")
		}
		if _, v := s.Reserve(st.BreakerUntil-1, manyRequests, quota.Request{}); v.Reason != forebay.WaitBreaker || v.RetryAt != st.BreakerUntil {
			t.Errorf("it takes a call before it is time: %+v", v)
		}
		now = st.BreakerUntil
		probe := call(t, s, now, manyRequests, quota.Request{})
		if _, v := s.Reserve(now+1, manyRequests, quota.Request{}); v.Admitted() || !probe.Probe || !s.Stopped() {
			t.Errorf("more than a probe goes: %+v", v)
		}
		now += 500
		if i == 2 { // headers come with refusals as well
			s.Feedback(now, manyRequests, probe, quota.Outcome{Kind: quota.HeadersArrived}, half)
		}
		if i == 3 { // it fails in another way: nobody knows more than before
			s.Feedback(now, manyRequests, probe, quota.Outcome{Kind: quota.Transient}, half)
			continue
		}
		deny(s, now, probe, quota.Unauthorized, true)
	}
	now = s.Status(now, manyRequests).BreakerUntil
	probe := call(t, s, now, manyRequests, quota.Request{})
	s.Feedback(now+10, manyRequests, probe, quota.Outcome{Kind: quota.Succeeded}, half)
	if st := s.Status(now+10, manyRequests); st.Breaker != quota.Closed || st.Denied != quota.NotDenied || s.Stopped() {
		t.Errorf("after a success: %+v", st)
	}
	begin(t, s, now+20, 3)

	var told []quota.Denial
	var last quota.ChangeKind
	for _, c := range s.Changes() {
		if last = c.Kind; c.Kind == quota.BreakerOpened {
			told = append(told, c.Denial)
		}
	}
	// Changes are not stored: those since it was read back last are of the last denial on.
	if len(told) != 1 || told[0] != quota.Unauthorized || last != quota.BreakerClosed {
		t.Errorf("told of %v, at last of %s", told, last)
	}
}

// TestDoubtfulDenials: what may be the call's own fault opens the breaker only when it happens
// three times and nothing goes well in between.
func TestDoubtfulDenials(t *testing.T) {
	s := new(quota.State)
	calls := begin(t, s, epoch, 12)
	for i, c := range calls[:9] {
		if i%3 == 2 {
			end(s, epoch+500, calls[i:i+1], "+")
			continue
		}
		if deny(s, epoch+500, c, quota.Unauthorized, false); s.Status(epoch+500, manyRequests).Breaker != quota.Closed {
			t.Fatalf("open after call %d", i)
		}
		s = reload(t, s)
	}
	for i, c := range calls[9:] {
		deny(s, epoch+600, c, quota.NotFound, false)
		if open := s.Status(epoch+600, manyRequests).Breaker == quota.Open; open != (i == 2) {
			t.Fatalf("after %d in a row it is open: %t", i+1, open)
		}
	}
	if why := s.Denied(); why != quota.NotFound {
		t.Errorf("denied for %v", why)
	}
	// Once it is, one that may be at fault itself is no sign that others would do better.
	now := s.Status(epoch+600, manyRequests).BreakerUntil
	deny(s, now+5, call(t, s, now, manyRequests, quota.Request{}), quota.NotFound, false)
	if st := s.Status(now+5, manyRequests); st.Breaker != quota.Open || st.BreakerUntil < now+minutes {
		t.Errorf("after a probe that was turned away: %+v", st)
	}
}

// probeTimeout is when a probe that was not heard of is given up.
const probeTimeout = 10_000

// TestDeniedProbes: a probe that fails for its own reasons leaves the place to the next at once.
// One whose process died does after a minute. Each is another candidate: one that is at fault
// itself must not keep all others away.
func TestDeniedProbes(t *testing.T) {
	s := new(quota.State)
	deny(s, epoch+10, begin(t, s, epoch, 1)[0], quota.Unpaid, true)
	now := s.Status(epoch+10, manyRequests).BreakerUntil
	s.Feedback(now+10, manyRequests, call(t, s, now, manyRequests, quota.Request{}), quota.Outcome{Kind: quota.Permanent}, half)
	lost := call(t, s, now+20, manyRequests, quota.Request{})
	if _, v := s.Reserve(now+20+probeTimeout-1, manyRequests, quota.Request{}); v.Admitted() {
		t.Error("a probe that is under way was given up before its time")
	}
	now += 20 + probeTimeout
	if next := call(t, s, now, manyRequests, quota.Request{}); !next.Probe {
		t.Error("no probe follows one that was lost")
	}
	deny(s, now+10, lost, quota.Unpaid, true)
	if st := s.Status(now+10, manyRequests); st.Breaker != quota.HalfOpen {
		t.Errorf("a probe that was given up says %+v", st)
	}

	line := []quota.Candidate{{ID: 1, Request: quota.Request{PromptTokens: 9}}, {ID: 2, Request: quota.Request{PromptTokens: 1}}, {ID: 3, Request: quota.Request{PromptTokens: 5}},
		{ID: 4, Request: quota.Request{PromptTokens: 7}}}
	for _, certain := range []bool{true, false} {
		tried, others := map[int]bool{}, 0
		for range 2 * len(line) {
			now += 20 * minutes
			for i, d := range s.Admit(now, manyRequests, line, 3) {
				if d.Admitted() {
					tried[i] = true
					if others++; i == 0 {
						others = 0
					}
					deny(s, now+10, d.Reservation, quota.Unpaid, certain)
				}
			}
			if others > 1 {
				t.Errorf("%d others in a row went before the first", others)
			}
		}
		if len(tried) != len(line) {
			t.Errorf("only %v tried", tried)
		}
	}
}

// TestDoubtfulDenialsAreTriedSoon: while each call that is turned away may be at fault itself,
// the next waits no longer than the first. Once one is certain, the times between tries grow from
// where they begin.
func TestDoubtfulDenialsAreTriedSoon(t *testing.T) {
	s, now := new(quota.State), int64(epoch)
	for _, c := range begin(t, s, now, 3) {
		deny(s, now+10, c, quota.Unauthorized, false)
	}
	now += 10
	for i, c := range []struct {
		certain bool
		minutes int64 // until the next try
	}{{false, 1}, {false, 1}, {false, 1}, {false, 1}, {true, 1}, {true, 2}, {true, 4}, {false, 1}, {false, 1}, {true, 1}, {true, 2}} {
		s = reload(t, s)
		until := s.Status(now, manyRequests).BreakerUntil
		probe := call(t, s, until, manyRequests, quota.Request{})
		s = reload(t, s)
		if now = until + 10; i == 2 { // it fails in another way: nobody knows more than before
			s.Feedback(now, manyRequests, probe, quota.Outcome{Kind: quota.Transient}, half)
		} else {
			deny(s, now, probe, quota.Unauthorized, c.certain)
		}
		if st := s.Status(now, manyRequests); st.BreakerUntil != now+c.minutes*minutes || st.Denied != quota.Unauthorized {
			t.Errorf("probe %d: %+v; the next is due %d minutes later", i, st, c.minutes)
		}
	}
}

// TestWhomADoubtfulDenialBlames: no call that was under way when the breaker was open, or before
// it closed, is blamed for being turned away. The probes are by turns different jobs.
func TestWhomADoubtfulDenialBlames(t *testing.T) {
	s, now := new(quota.State), int64(epoch)
	calls := begin(t, s, now, 40)
	if !s.Blames(calls[0]) {
		t.Error("nothing failed, and a call is not blamed")
	}
	end(s, now+500, calls[:12], "f")
	early, open := calls[38], s.Status(now+500, manyRequests)
	if open.Breaker != quota.Open {
		t.Fatalf("%+v", open)
	}
	for _, c := range calls[12:38] {
		if deny(s, now+600, c, quota.NotFound, false); s.Blames(c) {
			t.Fatal("a call that was turned away after the breaker had opened is blamed")
		}
	}
	now = open.BreakerUntil
	line := []quota.Candidate{{ID: 1, Request: quota.Request{PromptTokens: 9}}, {ID: 2, Request: quota.Request{PromptTokens: 1}}, {ID: 3, Request: quota.Request{PromptTokens: 5}}}
	tried := map[int]bool{}
	for range 2 {
		for i, d := range s.Clone().Admit(now, manyRequests, line, 1) {
			if d.Admitted() {
				tried[i] = true
			}
		}
		probe := call(t, s, now, manyRequests, quota.Request{})
		deny(s, now+5, probe, quota.NotFound, false)
		if st := s.Status(now+5, manyRequests); !probe.Probe || st.Breaker != quota.HalfOpen || s.Blames(probe) || s.Blames(early) {
			t.Fatalf("a probe that was turned away, or one of before, is blamed: %+v", st)
		}
		s, now = reload(t, s), now+10
	}
	if len(tried) != 2 {
		t.Errorf("only %v tried", tried)
	}
	for range 3 {
		now += 10
		end(s, now, []quota.Reservation{call(t, s, now-5, manyRequests, quota.Request{})}, "+")
	}
	late := begin(t, s, now, 1)[0]
	if st := s.Status(now, manyRequests); st.Breaker != quota.Closed || s.Blames(early) || !s.Blames(late) {
		t.Errorf("after it closed: %+v; it blames one of before: %t, one of now: %t", st, s.Blames(early), s.Blames(late))
	}
}

// TestRetryNow: an operator need not wait; if nothing was mended the times begin anew.
func TestRetryNow(t *testing.T) {
	s, now := new(quota.State), int64(epoch)
	s.Retry(now) // nothing to do
	deny(s, now+10, begin(t, s, now, 1)[0], quota.Unauthorized, true)
	for range 4 {
		now = s.Status(now, manyRequests).BreakerUntil + 20
		deny(s, now+10, call(t, s, now, manyRequests, quota.Request{}), quota.Unauthorized, true)
		now += 10
	}
	old := call(t, s, s.Status(now, manyRequests).BreakerUntil, manyRequests, quota.Request{})
	now = old.At + 500
	s.Retry(now)
	s = reload(t, s)
	probe := call(t, s, now+10, manyRequests, quota.Request{})
	deny(s, now+15, old, quota.Unauthorized, true)
	if st := s.Status(now+15, manyRequests); st.Breaker != quota.HalfOpen {
		t.Errorf("a probe of before says %+v", st)
	}
	deny(s, now+20, probe, quota.Unauthorized, true)
	if st := s.Status(now+20, manyRequests); st.BreakerUntil != now+20+minutes {
		t.Errorf("%+v", st)
	}
	s.Retry(now + 30)
	s = reload(t, s)
	end(s, now+50, []quota.Reservation{call(t, s, now+40, manyRequests, quota.Request{})}, "+")
	if st := s.Status(now+50, manyRequests); st.Breaker != quota.Closed {
		t.Errorf("%+v", st)
	}
	s.Retry(now + 60)
	if st := s.Status(now+60, manyRequests); st.Breaker != quota.Closed {
		t.Errorf("a closed breaker became %+v", st)
	}
}

// TestStatesOfTheVersionBefore: a state that was stored before denials were known is read. One
// that knows of none is stored as it was then, for older processes.
func TestStatesOfTheVersionBefore(t *testing.T) {
	stored, err := base64.StdEncoding.DecodeString(`A+in8cKxNA4AAAAAAAAAAAAAAAAAAA4AAAoAAAAAAAAAAAAAAAAAAAAAAAAAAAoAAPDO8cKxNOin8cKxNAEAAAAAAAAAAAAAAAAAAODUA+DUA7j/6cTyopkDDgAAAAAAAAAAAAAAAAAAAAADAYCQnekaAA4ABAAA`)
	if err != nil {
		t.Fatal(err)
	}
	var s quota.State
	if err := s.UnmarshalBinary(stored); err != nil {
		t.Fatal(err)
	}
	again, err := s.MarshalBinary()
	if err != nil || string(again) != string(stored) {
		t.Errorf("%v: stored as %x; it was %x", err, again, stored)
	}
	st := s.Status(epoch+2000, manyRequests)
	if st.Breaker != quota.Open || !st.Operator || st.Denied != quota.NotDenied || st.Counts.Calls != 14 || st.Counts.Failed == 0 {
		t.Errorf("%+v", st)
	}
}

// TestStatesThatKnewNoDoubt: a state that was stored before it was remembered whether the latest
// denial was in doubt is read, and taken to be certain.
func TestStatesThatKnewNoDoubt(t *testing.T) {
	// After six doubtful denials, the last 420,040 ms after epoch; the next try is due eight
	// minutes later.
	stored, err := base64.StdEncoding.DecodeString(`BMjxisOxNAYAAAAAAAAAAAAAAAAAAAYAAAYAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAMiXqMOxNIqg8cKxNAQAAL7xisOxNAAAAAAAAAAAAAAA4NQD4NQDmNSGjfSimQMGAAAAAAAAAAAAAAAAAAAAAAMAAgGQnZ3pGgABAAAAAA==`)
	if err != nil {
		t.Fatal(err)
	}
	for certain, later := range map[bool]int64{true: 15, false: 1} {
		var s quota.State
		if err := s.UnmarshalBinary(stored); err != nil {
			t.Fatal(err)
		}
		if again, err := s.MarshalBinary(); err != nil || string(again) != string(stored) {
			t.Errorf("%v: stored as %x; it was %x", err, again, stored)
		}
		st := s.Status(epoch+420_040, manyRequests)
		if st.Breaker != quota.Open || st.Denied != quota.NotFound || st.BreakerUntil != epoch+420_040+8*minutes {
			t.Errorf("%+v", st)
		}
		now := st.BreakerUntil
		deny(&s, now, call(t, &s, now, manyRequests, quota.Request{}), quota.NotFound, certain)
		if st := s.Status(now, manyRequests); st.BreakerUntil != now+later*minutes {
			t.Errorf("after a denial, certain %t: %+v; the next try is due %d minutes later", certain, st, later)
		}
	}
}
