package store

import (
	"errors"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// planOf has each job called at the deployment that its task names.
func planOf(limits quota.Limits) Plan {
	return func(task string, _ []byte, size int64) []Option {
		return []Option{{Deployment: task, Limits: limits, Request: quota.Request{PromptTokens: size, MaxOutputTokens: 1}}}
	}
}

// What came of a call whose lock was lost is taken in once.
func TestCallToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, queue int64) {
		tenant := tenantOf(t, s, "a")
		submitAll(t, s, NewJob{ID: "1", Tenant: tenant, Queue: queue, Task: "d", Priority: 5})
		req := ClaimRequest{Lane: LaneOf(queue, LaneMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute, Plan: planOf(quota.Limits{TokensPerMinute: 1e6})}
		got, err := s.Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Cancel(t.Context(), got[0].Seq); err != nil {
			t.Fatal(err)
		}
		got[0].Admission.Outcome = &quota.Outcome{Kind: quota.Transient}
		if err := s.Retry(t.Context(), &got[0], AttemptRecord{Outcome: forebay.OutcomeRetried}); !errors.Is(err, forebay.ErrLockLost) {
			t.Fatal(err)
		}
		if got[0].Admission != nil { // whose settlement told nothing
			if err := s.Tells(t.Context(), *got[0].Admission); err != nil {
				t.Fatal(err)
			}
		}
		states, now, err := s.Deployments(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if st := states["d"].Status(now, quota.Limits{TokensPerMinute: 1e6}); st.Counts.Failed != 1 {
			t.Errorf("%d failures", st.Counts.Failed)
		}
	})
}
