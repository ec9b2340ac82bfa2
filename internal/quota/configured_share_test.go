package quota_test

import (
	"math/rand/v2"
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

// Beside others who use a part of a provider's minutes, what is configured is used whole. A call
// may go whenever one of the last minute's is a minute old. What headers said need not be old.
func TestWhatIsConfiguredIsUsedBesideOthers(t *testing.T) {
	t.Parallel()
	const most, minutes = 240_000, 20
	for _, configured := range []int64{30_000, 60_000, 100_000} {
		rng := rand.New(rand.NewPCG(1, 7))
		l := quota.Limits{Accounting: quota.AccountAzureOpenAI, TokensPerMinute: configured}
		var s quota.State
		var used, ours, refused, retryAt int64
		var ends []func()
		for now := int64(epoch); now < epoch+minutes*60_000; now += 50 {
			if now%60_000 == 0 {
				used = 0
			}
			if rng.IntN(20) == 0 { // 90,000 tokens a minute
				used += rng.Int64N(3000)
			}
			heard := false
			if len(ends) > 5 { // a call takes 300 ms
				if heard = ends[0] != nil; heard {
					ends[0]()
				}
				ends = ends[1:]
			}
			var end func()
			for size := int64(0); heard || now >= retryAt; ours += size {
				size = 200 + rng.Int64N(1600)
				r, v := s.Reserve(now, l, quota.Request{PromptTokens: size / 2, MaxOutputTokens: size - size/2})
				if !v.Admitted() {
					retryAt = v.RetryAt
					break
				}
				reset := millis(60_000 - now%60_000)
				o := quota.Outcome{Kind: quota.Succeeded, Usage: quota.Usage{PromptTokens: size / 2, OutputTokens: size / 3}}
				if used += size; used > most {
					refused++
					o = quota.Outcome{Kind: quota.ThrottledTokens, RetryAfter: reset}
				}
				o.Headers = quota.Headers{Limit: quota.Amount{quota.Tokens: most}, Remaining: quota.Amount{quota.Tokens: most - used},
					Reset: [3]time.Duration{quota.Tokens: reset}}
				earlier := end
				end = func() {
					if earlier != nil {
						earlier()
					}
					s.Feedback(now+300, l, r, o, rng.Float64)
				}
			}
			ends = append(ends, end)
		}
		t.Logf("%d configured, %d used a minute, %d calls refused", configured, ours/minutes, refused)
		if a := ours / minutes; a < configured*9/10 || a > configured || refused > 0 {
			t.Errorf("%d configured, %d used a minute, %d calls refused", configured, a, refused)
		}
	}
}

// Headers may say what is left and not the limit. If that is more than is configured, the rest of
// the provider's quota is not ours: what is configured is used, and no more.
func TestWhatIsConfiguredIsAllWhereHeadersNameNoLimit(t *testing.T) {
	t.Parallel()
	const configured, size, minutes = 6000, 100, 10
	for _, accounting := range []quota.Accounting{quota.AccountOpenAI, quota.AccountAzureOpenAI, quota.AccountAnthropic} {
		for _, most := range []int64{10_000, 1_000_000_000} {
			l := quota.Limits{Accounting: accounting, TokensPerMinute: configured}
			var s quota.State
			var sent []int64 // when, in the last minute
			used, all := int64(0), int64(0)
			for now := int64(epoch); now < epoch+minutes*60_000; now += 50 {
				if now%60_000 == 0 {
					used = 0
				}
				r, v := s.Reserve(now, l, quota.Request{PromptTokens: size, MaxOutputTokens: -1})
				if !v.Admitted() {
					continue
				}
				for len(sent) > 0 && sent[0] <= now-60_000 {
					sent = sent[1:]
				}
				if sent = append(sent, now); len(sent)*size > configured {
					t.Fatalf("accounting %d, %d at the provider: %d tokens in a minute, after %d s", accounting, most, len(sent)*size, (now-epoch)/1000)
				}
				used, all = used+size, all+size
				s.Feedback(now+40, l, r, quota.Outcome{Kind: quota.Succeeded, Headers: quota.Headers{
					Remaining: quota.Amount{quota.Tokens: most - used}, Reset: [3]time.Duration{time.Duration(60_000-now%60_000) * time.Millisecond}}}, half)
				s = *reload(t, &s)
			}
			if all < minutes*configured*9/10 {
				t.Errorf("accounting %d, %d at the provider: %d tokens in %d minutes", accounting, most, all, minutes)
			}
			// More is configured since.
			l.TokensPerMinute = 20_000
			now := int64(epoch + (minutes+3)*60_000)
			if s.Status(now, l).Limit[quota.Tokens] != l.TokensPerMinute {
				t.Errorf("accounting %d, %d at the provider: the limit stays at %d", accounting, most, s.Status(now, l).Limit[quota.Tokens])
			}
		}
	}
}
