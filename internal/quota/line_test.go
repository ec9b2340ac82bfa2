package quota_test

import (
	"slices"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// TestNobodyDelaysOneThatIsHeld has small jobs come without end behind one that needs half of the
// quota. They go ahead of it while they take nothing that it needs, so that it goes when it would
// if they did not come.
func TestNobodyDelaysOneThatIsHeld(t *testing.T) {
	s, next := new(quota.State), int64(2)
	small := func() quota.Candidate {
		next++
		return quota.Candidate{ID: next, Request: quota.Request{PromptTokens: 1000, MaxOutputTokens: 500}}
	}
	var line []quota.Candidate
	for len(line) < 50 {
		line = append(line, small())
	}
	// In the first minute nothing leaves the window. A large call at its beginning leaves more
	// than the one that waits needs.
	call(t, s, epoch, azureLimits, quota.Request{PromptTokens: 140_000, MaxOutputTokens: 500})
	large := quota.Candidate{ID: 1, Request: quota.Request{PromptTokens: 110_000, MaxOutputTokens: 500}}
	due, ahead := int64(0), 0
	for now := int64(epoch + 40_000); now < epoch+300_000; now += 100 {
		if now == epoch+50_000 {
			line = append([]quota.Candidate{large}, line...)
		}
		var left []quota.Candidate
		for i, d := range s.Admit(now, azureLimits, line, 8) {
			switch {
			case d.Reservation.Seq == 0:
				if left = append(left, line[i]); line[i].ID == large.ID && due == 0 {
					due = d.Verdict.RetryAt
				}
			case line[i].ID != large.ID:
				if due > 0 {
					ahead++
				}
			case due == 0 || ahead == 0:
				t.Fatalf("%d went ahead of it until %d: the test shows nothing", ahead, due)
			case now > due+100:
				t.Fatalf("it went %d ms later than it would have", now-due)
			default:
				return
			}
		}
		for line = left; len(line) < 50; {
			line = append(line, small())
		}
		s = reload(t, s)
	}
	t.Fatal("never went")
}

// TestNoneOfManyIsPassedOverForLong has as many large jobs at the head of the line as others may
// go ahead of at once. The last of them waits no longer than the first until that ends.
func TestNoneOfManyIsPassedOverForLong(t *testing.T) {
	s, next := new(quota.State), int64(1000)
	var line []quota.Candidate
	for id := range int64(quota.Backfill) {
		line = append(line, quota.Candidate{ID: 1 + id, Request: quota.Request{PromptTokens: 30_000, MaxOutputTokens: 500}})
	}
	firstAhead := int64(0)
	for now := int64(epoch); now < epoch+1_200_000; now += 100 {
		for len(line) < 100 {
			next++
			line = append(line, quota.Candidate{ID: next, Request: quota.Request{PromptTokens: 1000, MaxOutputTokens: 500}})
		}
		var left []quota.Candidate
		larges, ahead := 0, false
		for i, d := range s.Admit(now, azureLimits, line, 8) {
			switch large := line[i].ID < 1000; {
			case d.Reservation.Seq == 0:
				left = append(left, line[i])
				if large {
					larges++
				}
			case !large:
				ahead = true
			}
		}
		if larges == 0 {
			if firstAhead == 0 {
				t.Fatal("they were never passed over: the test shows nothing")
			}
			return
		}
		if ahead && firstAhead == 0 {
			firstAhead = now
		}
		if ahead && now-firstAhead > 46_000 {
			t.Fatalf("%d are still passed over after %d ms", larges, now-firstAhead)
		}
		line = left
		s = reload(t, s)
	}
	t.Fatal("some never went")
}

func TestBackfill(t *testing.T) {
	var s quota.State
	r := call(t, &s, epoch, azureLimits, quota.Request{PromptTokens: 100})
	s.Feedback(epoch+300, azureLimits, r, quota.Outcome{Kind: quota.HeadersArrived,
		Headers: quota.Headers{Limit: quota.Amount{tpm}, Remaining: quota.Amount{8000}}}, half)
	line := []quota.Candidate{
		{ID: 1, Request: quota.Request{PromptTokens: 1000, MaxOutputTokens: 1000}},
		{ID: 2, Request: quota.Request{PromptTokens: 20_000, MaxOutputTokens: 1000}},
		{ID: 3, Request: quota.Request{PromptTokens: 100, MaxOutputTokens: 100}},
		{ID: 4, Request: quota.Request{PromptTokens: 100, MaxOutputTokens: 100}},
	}
	d := s.Admit(epoch+1000, azureLimits, line, 2)
	if d[0].Reservation.Seq == 0 || d[1].Verdict.Reason != forebay.WaitQuota || d[2].Reservation.Seq == 0 || d[3].Reservation.Seq != 0 {
		t.Errorf("%+v", d)
	}
	// So many are tried behind the one that does not fit, and no more.
	line = line[1:2]
	for i := range quota.Backfill {
		line = append(line, quota.Candidate{ID: int64(10 + i), Request: quota.Request{PromptTokens: 20_000, MaxOutputTokens: 1000}})
	}
	line = append(line, quota.Candidate{ID: 99, Request: quota.Request{PromptTokens: 100, MaxOutputTokens: 100}})
	d = s.Admit(epoch+1100, azureLimits, line, 5)
	if last := d[len(d)-1]; last.Reservation.Seq != 0 || last.Verdict.Admitted() {
		t.Errorf("the 66th: %+v", last)
	}
}

// TestProbeIsTheCheapest: whatever the order, one candidate finds out whether it works again. It
// is by turns the cheapest and any, once it is no longer in doubt whether the deployment is at
// fault.
func TestProbeIsTheCheapest(t *testing.T) {
	var s quota.State
	now, until := int64(epoch), int64(0)
	for until < epoch+16_000 {
		now = max(now+500, until)
		r := call(t, &s, now, azureLimits, quota.Request{PromptTokens: 10, MaxOutputTokens: 10})
		s.Feedback(now+10, azureLimits, r, quota.Outcome{Kind: quota.Transient}, half)
		until = s.Status(now, azureLimits).BreakerUntil
	}
	line := []quota.Candidate{
		{ID: 1, Request: quota.Request{PromptTokens: 1000}}, {ID: 2, Request: quota.Request{PromptTokens: 10}}, {ID: 3, Request: quota.Request{PromptTokens: 500}},
	}
	if d := s.Admit(until-1, azureLimits, line, 3); d[1].Verdict.Reason != forebay.WaitBreaker {
		t.Errorf("while open: %+v", d)
	}
	var probes []int
	for range 2 { // by turns it is the cheapest and any
		now = s.Status(now, azureLimits).BreakerUntil
		for i, d := range s.Admit(now, azureLimits, line, 3) {
			if d.Admitted() {
				probes = append(probes, i)
				s.Feedback(now+10, azureLimits, d.Reservation, quota.Outcome{Kind: quota.Transient}, half)
			} else if d.Verdict.Reason != forebay.WaitBreaker {
				t.Errorf("half-open: %+v", d)
			}
		}
	}
	if len(probes) != 2 || !slices.Contains(probes, 1) {
		t.Errorf("probes %v", probes)
	}
}
