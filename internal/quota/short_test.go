package quota_test

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/quota"
)

// After a refusal that tells when the provider's next second begins, calls go at the beginning of
// seconds, no more than fit. Where a call that came so is refused, others were there, and one
// call less goes.
func TestCallsKeepToTheSecondsOfWhichRefusalsTell(t *testing.T) {
	t.Parallel()
	limits := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 6_000_000, RequestsPerMinute: 300}
	small := quota.Request{PromptTokens: 10, MaxOutputTokens: 10}
	var s quota.State
	now := int64(epoch)
	refuse := func(r quota.Reservation, wait time.Duration) {
		t.Helper()
		s.Feedback(r.At+60, limits, r, quota.Outcome{Kind: quota.ThrottledRequests, RetryAfter: wait}, half)
		s = *reload(t, &s)
	}
	refuse(call(t, &s, now, limits, small), 437*time.Millisecond)
	begins := now + 437 // and each second after it
	// seconds makes as many calls as may go in some seconds, and returns how many went in each.
	seconds := func(n int) (most int, last quota.Reservation) {
		t.Helper()
		now = max(now, begins) + 2000 - (max(now, begins)-begins)%1000
		for range n {
			went := 0
			for end := now + 1000; now < end; now++ {
				r, v := s.Reserve(now, limits, small)
				if !v.Admitted() {
					now = max(now, min(v.RetryAt, end)-1)
					continue
				}
				s.Feedback(now, limits, r, quota.Outcome{Kind: quota.Succeeded}, half)
				went, last = went+1, r
				if late := (r.At - begins) % 1000; late > 250 {
					t.Errorf("a call went %d ms after a second began", late)
				}
			}
			most = max(most, went)
		}
		return most, last
	}
	before, _ := seconds(5)
	for range 2 { // the first time it may be a call of ours that took long
		_, r := seconds(1)
		refuse(r, time.Duration(1000-(r.At-begins)%1000)*time.Millisecond+999*time.Microsecond)
	}
	after, _ := seconds(5)
	if before != 5 || after != 4 {
		t.Errorf("%d calls in a second, and %d when others were met; want 5 and 4", before, after)
	}
}
