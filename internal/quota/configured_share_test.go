package quota_test

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/quota"
)

// Less may be configured than the provider has, as others are to have the rest. What they use of
// that rest takes nothing from what is configured. What they use beyond it does.
func TestOthersUseTheRestOfAProvidersQuota(t *testing.T) {
	t.Parallel()
	const most, configured, size = 240_000, 60_000, 1000
	l := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: configured}
	for _, c := range []struct{ remaining, want int64 }{
		{100_000, configured}, // others have used 139,000 of their 180,000
		{50_000, 50_000},      // and here 189,000
	} {
		var s quota.State
		ask := quota.Request{PromptTokens: 1, MaxOutputTokens: size - 1}
		r := call(t, &s, epoch, l, ask)
		s.Feedback(epoch+100, l, r, quota.Outcome{Kind: quota.Succeeded, Headers: quota.Headers{Limit: quota.Amount{quota.Tokens: most},
			Remaining: quota.Amount{quota.Tokens: c.remaining}, Reset: [3]time.Duration{quota.Tokens: 58 * time.Second}}}, half)
		s = *reload(t, &s)
		used := int64(0)
		for now := int64(epoch + 6000); now < epoch+57_000; now += 500 { // what the headers said is old
			if r, v := s.Reserve(now, l, ask); v.Admitted() {
				used += r.Amount[quota.Tokens]
				s.Feedback(now+100, l, r, quota.Outcome{Kind: quota.Succeeded}, half)
			}
		}
		if used < c.want*9/10 || used > c.want*11/10 { // calls also find out whether it is still so
			t.Errorf("%d tokens are left and %d configured: %d used; want about %d", c.remaining, configured, used, c.want)
		}
	}
}
