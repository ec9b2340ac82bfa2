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

// A day's quota may be used up of which no header tells. Each call is then told to come back in
// hours, and none is too large. A backlog is not sent to be refused, call by call.
func TestLongRefusalsOfABacklogCloseTheDeployment(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]quota.Limits{
		"nothing is configured": {Accounting: quota.AccountOpenAI},
		"a limit is configured": {Accounting: quota.AccountAzureOpenAI, TokensPerMinute: 1_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const jobs, renewed = 5000, 3 * 3600_000
			var s quota.State
			back := make([]int64, jobs) // when each job may be called again
			refused, went, last := 0, 0, int64(0)
			for now := int64(epoch); now < epoch+renewed+600_000; now += 1000 {
				for i := range jobs {
					if back[i] > now {
						continue
					}
					r, v := s.Reserve(now, l, quota.Request{PromptTokens: 100, MaxOutputTokens: 100})
					if !v.Admitted() {
						break
					}
					o := quota.Outcome{Kind: quota.Oversize, RetryAfter: 24 * time.Hour}
					if back[i] = now + 3600_000; now >= epoch+renewed {
						o, back[i] = quota.Outcome{Kind: quota.Succeeded}, 1<<60
						went, last = went+1, now-epoch-renewed
					} else {
						refused++
					}
					s.Feedback(now, l, r, o, half)
				}
			}
			if refused > 200 {
				t.Errorf("%d calls were made to be refused in three hours", refused)
			}
			if went < jobs/2 {
				t.Errorf("%d calls went well in the ten minutes after that, the last after %d s", went, last/1000)
			}
		})
	}
}

// Calls that are too large close nothing where a limit tells that they are.
func TestLongRefusalsOfLargeCallsKeepNobodyAway(t *testing.T) {
	t.Parallel()
	l := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: tpm}
	var s quota.State
	for now := int64(epoch); now < epoch+20_000_000; now += 70_000 {
		r := call(t, &s, now, l, quota.Request{PromptTokens: tpm * 3 / 4})
		s.Feedback(now+100, l, r, quota.Outcome{Kind: quota.Oversize, RetryAfter: 24 * time.Hour}, half)
	}
}
