package quota_test

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/quota"
)

var smallCall = quota.Request{PromptTokens: 500, MaxOutputTokens: 500}

// TestOneAsksFirst: where nothing is known two calls go, and the others when one of them is heard
// of, or is not for a while.
func TestOneAsksFirst(t *testing.T) {
	begin := func() (s *quota.State, first quota.Reservation) {
		s = new(quota.State)
		first = call(t, s, epoch, azureLimits, smallCall)
		call(t, s, epoch, azureLimits, smallCall)
		if _, v := s.Reserve(epoch, azureLimits, smallCall); v.Admitted() || v.RetryAt <= epoch || v.RetryAt > epoch+3000 {
			t.Fatalf("the third at once: %+v", v)
		}
		return reload(t, s), first
	}
	s, first := begin()
	s.Feedback(epoch+300, azureLimits, first, quota.Outcome{Kind: quota.HeadersArrived}, half)
	for range 5 {
		call(t, s, epoch+300, azureLimits, smallCall)
	}
	s, _ = begin()
	for range 5 {
		call(t, s, epoch+3000, azureLimits, smallCall)
	}
	s, first = begin()
	s.Feedback(epoch+100, azureLimits, first, quota.Outcome{Kind: quota.ThrottledTokens, RetryAfter: time.Second}, half)
	n := 0
	for at := int64(epoch + 100); at < epoch+2500; at += 50 {
		if _, v := s.Reserve(at, azureLimits, smallCall); v.Admitted() {
			n++
		}
		s = reload(t, s)
	}
	if n != 1 && n != 2 {
		t.Errorf("%d calls went after a refusal before one was heard of", n)
	}
}

// TestFullWindowIsAskedOf: when the calls of a full window leave it, one goes and not as many as
// left.
func TestFullWindowIsAskedOf(t *testing.T) {
	s, now := new(quota.State), int64(epoch)
	large := quota.Request{PromptTokens: 9_000, MaxOutputTokens: 1_000}
	for range 22 {
		r := call(t, s, now, azureLimits, large)
		s.Feedback(now+500, azureLimits, r, quota.Outcome{Kind: quota.HeadersArrived}, half)
		now += 2100
	}
	now = epoch + 75_000 // seven of them have left, and nothing was heard of for a while
	first := call(t, s, now, azureLimits, large)
	if _, v := s.Reserve(now, azureLimits, large); v.Admitted() {
		t.Fatal("two went at once")
	}
	s.Feedback(now+400, azureLimits, first, quota.Outcome{Kind: quota.HeadersArrived}, half)
	call(t, s, now+400, azureLimits, large)
	call(t, s, now+400, azureLimits, large)
}

// TestExplainedRefusal: a refusal whose headers say that too little was left, as another client
// has used it, keeps the limit. One whose headers say that there is enough lowers it.
func TestExplainedRefusal(t *testing.T) {
	for _, c := range []struct {
		remaining int64
		lower     bool
	}{{300, false}, {100_000, true}} {
		s := new(quota.State)
		r := call(t, s, epoch, azureLimits, smallCall)
		s.Feedback(epoch+100, azureLimits, r, quota.Outcome{Kind: quota.ThrottledTokens, RetryAfter: 40 * time.Second, Headers: quota.Headers{
			Limit: quota.Amount{tpm}, Remaining: quota.Amount{c.remaining}, Reset: [3]time.Duration{40 * time.Second}}}, half)
		if got := s.Status(epoch+100, azureLimits).Limit[quota.Tokens]; got < tpm != c.lower {
			t.Errorf("%d remained: the limit is %d", c.remaining, got)
		}
	}
}

// TestWordOfASlice: what remains of the requests of a second does not keep the next second's back.
func TestWordOfASlice(t *testing.T) {
	s := new(quota.State)
	r := call(t, s, epoch, azureLimits, smallCall)
	s.Feedback(epoch+900, azureLimits, r, quota.Outcome{Kind: quota.HeadersArrived, Headers: quota.Headers{
		Limit: quota.Amount{tpm, 1440}, Remaining: quota.Amount{200_000, 1}, Reset: [3]time.Duration{30 * time.Second, time.Second}}}, half)
	for range 4 {
		call(t, s, epoch+900, azureLimits, smallCall)
	}
}

// TestResetsOfAnySize: whatever reset a header names, the state can be stored.
func TestResetsOfAnySize(t *testing.T) {
	s := new(quota.State)
	for i, reset := range []time.Duration{0, time.Second, time.Hour, 7 * 24 * time.Hour, -time.Second} {
		now := int64(epoch + 10_000*i)
		r := call(t, s, now, azureLimits, smallCall)
		s.Feedback(now+100, azureLimits, r, quota.Outcome{Kind: quota.HeadersArrived, Headers: quota.Headers{
			Limit: quota.Amount{tpm}, Remaining: quota.Amount{200_000}, Reset: [3]time.Duration{reset}}}, half)
		s = reload(t, s)
	}
}
