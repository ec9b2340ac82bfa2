package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// Operations that break their transactions, one after the other, do not keep claims from being
// served.
func TestFailingOperationsDoNotStarveClaims(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		queueID, tenant := queueOf(t, s, "q"), tenantNamed(t, s, "default")
		for _, id := range []string{"a", "b"} {
			submitAll(t, s, NewJob{ID: id, Tenant: tenant, Queue: queueID, Task: "t", MaxAttempts: 1, Input: []byte("1"), InputSize: 1})
		}
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Hour}
		if _, err := s.Jobs.Claim(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		broken := errors.New("broken")
		fail := func() {
			t.Helper()
			_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{}, func(*db.Tx) (int, error) { return 0, broken })
			if !errors.Is(err, broken) {
				t.Fatal(err)
			}
		}
		fail()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		served := make(chan error, 1)
		go func() {
			_, err := s.Jobs.Claim(ctx, request)
			served <- err
		}()
		for began := time.Now(); ; fail() {
			select {
			case err := <-served:
				mustDo(t, err)
				return
			case <-time.After(200 * time.Millisecond):
			}
			if time.Since(began) > 20*time.Second {
				t.Fatal("the claim is not served")
			}
		}
	})
}
