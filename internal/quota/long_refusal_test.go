package quota_test

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/quota"
)

// A refusal may ask for an hour or more though its call cannot be too large. Then it is of
// something that all calls need, such as a day's quota. No call follows until it is worth it.
func TestLongRefusalsOfSmallCallsPause(t *testing.T) {
	t.Parallel()
	function := quota.Limits{Accounting: quota.AccountNone}
	openAI := quota.Limits{Accounting: quota.AccountOpenAI}
	told := quota.Headers{Limit: quota.Amount{quota.Tokens: tpm, quota.Requests: 500}, Remaining: quota.Amount{quota.Tokens: tpm - 1000}}
	small, large := quota.Request{PromptTokens: 100, MaxOutputTokens: 900}, quota.Request{PromptTokens: tpm}
	for name, c := range map[string]struct {
		limits  quota.Limits
		request quota.Request
		kind    quota.OutcomeKind
		headers quota.Headers
		paused  bool
	}{
		"of a function":               {function, quota.Request{}, quota.Throttled, quota.Headers{}, true},
		"of a day's requests":         {openAI, small, quota.ThrottledRequests, told, true},
		"of a day's tokens":           {openAI, small, quota.Oversize, told, true},
		"of a large call":             {openAI, large, quota.Oversize, told, false},
		"where no limit is told":      {openAI, small, quota.Oversize, quota.Headers{}, false},
		"of tokens, of a large call":  {openAI, large, quota.ThrottledTokens, told, false},
		"of tokens, without a reason": {openAI, small, quota.Throttled, told, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s quota.State
			now, calls := int64(epoch), 0
			for now < epoch+3*3600_000 && calls < 100 {
				r, v := s.Reserve(now, c.limits, c.request)
				if !v.Admitted() {
					now = v.RetryAt
					continue
				}
				calls++
				now += 100
				s.Feedback(now, c.limits, r, quota.Outcome{Kind: c.kind, RetryAfter: 3 * time.Hour, Headers: c.headers}, half)
				if st := s.Status(now, c.limits); st.Limit[quota.Tokens] != c.headers.Limit[quota.Tokens] {
					t.Fatalf("the minute's limit is %d by such a refusal", st.Limit[quota.Tokens])
				}
				s = *reload(t, &s)
			}
			if paused := calls <= 4; paused != c.paused {
				t.Errorf("%d calls in three hours", calls)
			}
		})
	}
}
