package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// Jobs are submitted while others are claimed and settled, several times under the same key: each is made once
// and delivered once.
func TestSubmitBesideClaims(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		const producers, each = 16, 60
		tenant, queue := tenantOf(t, s, "acme"), queueOf(t, s, "q")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		var delivered sync.Map
		var left atomic.Int64
		left.Store(producers / 2 * each)
		var workers, clients sync.WaitGroup
		working, stop := context.WithCancel(ctx)
		for range 2 {
			workers.Go(func() {
				for working.Err() == nil {
					got, err := s.Claim(working, ClaimRequest{Lane: LaneOf(queue, LaneMain), Max: 5, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3})
					if err != nil {
						return
					}
					for i := range got {
						if _, again := delivered.LoadOrStore(got[i].ID, true); again {
							t.Errorf("%s is delivered twice", got[i].ID)
						}
						if err := s.Succeed(ctx, &got[i], AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: got[i].Input, Size: 1}); err != nil {
							t.Error(err)
						}
						left.Add(-1)
					}
				}
			})
		}
		var ids sync.Map // key → the job it made
		for p := range producers {
			clients.Go(func() {
				for n := range each {
					key := fmt.Sprintf("%d,\"%d\\", p/2, n) // two producers share it
					made, err := s.Submit(ctx, []NewJob{{ID: fmt.Sprintf("job_%d_%d", p, n), Tenant: tenant, Queue: queue, Task: "echo", MaxAttempts: 5,
						Input: []byte("1"), InputSize: 1, IdempotencyKey: key, BodyHash: []byte(key)}})
					if err != nil || made[0].Err != nil {
						t.Errorf("%v, %v", err, made)
						return
					}
					if first, _ := ids.LoadOrStore(key, made[0].ID); first != made[0].ID {
						t.Errorf("the key %q has made %s and %s", key, first, made[0].ID)
					}
				}
			})
		}
		clients.Wait()
		for left.Load() > 0 && ctx.Err() == nil {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		stop()
		workers.Wait()
		if left.Load() != 0 {
			t.Fatalf("%d jobs were not delivered", left.Load())
		}
		made, err := s.Submit(ctx, []NewJob{{ID: "job_other", Tenant: tenant, Queue: queue, Task: "echo", MaxAttempts: 5, IdempotencyKey: `0,"0\`, BodyHash: []byte("other")}})
		var refused *forebay.Error
		if err != nil || !errors.As(made[0].Err, &refused) || refused.Code != forebay.CodeIdempotencyMismatch {
			t.Errorf("the same key with another body: %v, %+v", err, made)
		}
	})
}

// A subscription that is made between submissions gets the events of all that are submitted after it.
func TestFollowBetweenSubmissions(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		tenant, queue := tenantOf(t, s, "acme"), queueOf(t, s, "q")
		submit := func(id string) {
			if _, err := s.Submit(t.Context(), []NewJob{{ID: id, Tenant: tenant, Queue: queue, Task: "echo", MaxAttempts: 5}}); err != nil {
				t.Fatal(err)
			}
		}
		submit("job_before")
		settings := MessageQueue{Tenant: tenant, Lock: time.Minute, MaxDeliveries: 5}
		topic := settings
		topic.Name, topic.IsTopic = "acme/"+forebay.TopicJobEvents, true
		topic, _, err := s.PutMessageQueue(t.Context(), topic, 10)
		if err != nil {
			t.Fatal(err)
		}
		all, everything := settings, true
		all.Name = SubscriptionName(topic.Name, "all")
		all, _, err = s.PutSubscription(t.Context(), topic, all, []Rule{{Name: "$Default", Settings: forebay.RuleSettings{BooleanFilter: &everything}}}, 10)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			submit(fmt.Sprintf("job_%d", n))
		}
		got, err := s.Receive(t.Context(), ReceiveRequest{Queue: all, Max: 10, MaxBytes: 1 << 20, Delete: true})
		if err != nil || len(got) != 3 {
			t.Fatalf("%d events (%v)", len(got), err)
		}
		for n, m := range got {
			if want := fmt.Sprintf("job_%d-1", n); m.MessageID != want {
				t.Errorf("event %d is %s instead of %s", n, m.MessageID, want)
			}
		}
	})
}

// The old holder of a lock that has expired and the new one settle in the same transaction: the old one is told
// that it has lost, and no transaction fails.
func TestTwoHoldersInOneTransaction(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		tenant, queue := tenantOf(t, s, "acme"), queueOf(t, s, "q")
		put(t, s, tenant, queue, 1, nil)
		old := take(t, s, LaneOf(queue, LaneMain), 1, time.Millisecond)[0]
		current := take(t, s, LaneOf(queue, LaneMain), 1, time.Minute)[0]
		s.OnCommit(func(c Commit) {
			if c.Err != nil {
				t.Error(c.Err)
			}
		})
		begun, gate := make(chan struct{}), make(chan struct{})
		var callers sync.WaitGroup
		callers.Go(func() {
			_, err := transact(t.Context(), s, stageChange, func(*tx) (int, error) { close(begun); <-gate; return 0, nil })
			if err != nil {
				t.Error(err)
			}
		})
		<-begun
		ends := []error{nil, nil}
		for i, d := range []Delivery{old, current} {
			callers.Go(func() {
				ends[i] = s.Succeed(t.Context(), &d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte(fmt.Sprint(i)), Size: 1})
			})
			for len(s.writer.ops) <= i {
				<-time.After(time.Millisecond)
			}
		}
		close(gate)
		callers.Wait()
		if !errors.Is(ends[0], forebay.ErrLockLost) || ends[1] != nil {
			t.Errorf("the old holder got %v, the new one %v", ends[0], ends[1])
		}
	})
}
