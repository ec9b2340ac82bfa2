package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/panics"
	"github.com/forebayhq/forebay/internal/queue"
)

// A plan that panics while a claim is being served ends the claim, as it does before that. The
// claim does not wait for ever.
func TestAPanicEndsTheClaimThatIsServed(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		queueID, tenant := queueOf(t, s, "q"), tenantNamed(t, s, "default")
		submit := func(id, task string) {
			submitAll(t, s, NewJob{ID: id, Tenant: tenant, Queue: queueID, Task: task, MaxAttempts: 1, Input: []byte("1"), InputSize: 1})
		}
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 2, MaxBytes: 1 << 20, Lock: time.Millisecond}
		for _, id := range []string{"a", "b"} {
			submit(id, "t")
		}
		for n := 0; n < request.Max; {
			got, err := s.Jobs.Claim(t.Context(), request)
			mustDo(t, err)
			n += len(got)
		}
		<-time.After(20 * time.Millisecond) // their locks end
		// The claim finds these two first. They have had all their deliveries, so it searches again.
		submit("c", "panics")
		request.MaxDeliveries, request.FailureSubqueue = 1, queue.SubqueueDeadLetter
		request.Plan = func(task string, _ []byte, _ int64, _ *forebay.CallEstimate) []admission.Option {
			if task == "panics" {
				panic(task)
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := s.Jobs.Claim(ctx, request)
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, panics.ErrPanicked) {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the claim waits for ever")
		}
	})
}
