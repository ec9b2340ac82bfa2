package jobs

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/queue"
)

// Jobs of several queues are submitted, claimed in handfuls, retried and ended, all at once. Each
// is delivered in its own subqueue, to one worker at a time, and ends.
func TestManySubqueuesAtOnce(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantNamed(t, s, "default")
		const queues, each = 3, 400
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var held sync.Map // job → true from its delivery on, unless it is retried
		var ended atomic.Int64
		var workers, producers sync.WaitGroup
		for q := range queues {
			queueID, err := s.Queues.EnsureQueue(ctx, fmt.Sprintf("q%d", q))
			if err != nil {
				t.Fatal(err)
			}
			for _, kind := range []queue.SubqueueKind{queue.SubqueueMain, queue.SubqueueRetry} {
				for range 3 {
					workers.Go(func() {
						for {
							got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(queueID, kind), Max: 7, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3})
							if err != nil {
								return
							}
							for i := range got {
								d := &got[i]
								if _, taken := held.LoadOrStore(d.ID, true); taken {
									t.Errorf("%s is delivered twice", d.ID)
								}
								if d.Subqueue != queue.SubqueueOf(queueID, kind) || d.Task != fmt.Sprint(queueID) {
									t.Errorf("%s of queue %s came to lane %d", d.ID, d.Task, d.Subqueue)
								}
								record := AttemptRecord{Deployment: "sim", Outcome: forebay.OutcomeRetried, ErrorClass: forebay.ClassTransient, ErrorCode: "503"}
								if d.Seq%3 == 0 && kind == queue.SubqueueMain {
									held.Delete(d.ID)
									err = s.Jobs.Retry(ctx, d, record)
								} else {
									err = s.Jobs.Succeed(ctx, d, AttemptRecord{Deployment: "sim", Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1})
									ended.Add(1)
								}
								if err != nil {
									t.Errorf("settle %s: %v", d.ID, err)
								}
							}
							if ended.Load() == queues*each {
								cancel()
							}
						}
					})
				}
			}
			for p := range 4 {
				producers.Go(func() {
					for n := range each / 4 {
						made, err := s.Jobs.Submit(ctx, []NewJob{{ID: fmt.Sprintf("job-%d-%d-%d", q, p, n), Tenant: tenant, Queue: queueID, Task: fmt.Sprint(queueID),
							Priority: n % 10, MaxAttempts: 5, Input: []byte("{}"), InputSize: 2}})
						if err != nil || made[0].Err != nil {
							t.Errorf("submit: %v %v", err, made)
						}
					}
				})
			}
		}
		producers.Wait()
		workers.Wait()
		if n := ended.Load(); n != queues*each {
			t.Errorf("%d of %d jobs ended", n, queues*each)
		}
	})
}

// A worker gets the same of a job, whether it was handed off as it was submitted or read from the
// database later.
func TestHandedOverAsStored(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		tenant := tenantNamed(t, s, "default")
		queueID := queueOf(t, s, "q")
		request := ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3}
		submit := func(id string) {
			cost, tokens, deadline := 3*forebay.Dollar, int64(5000), time.Now().Add(time.Hour)
			input := []byte(`{"a":1}`)
			made, err := s.Jobs.Submit(t.Context(), []NewJob{{ID: id, Tenant: tenant, Queue: queueID, Task: "t", Priority: 7, MaxAttempts: 4, MaxCost: &cost, MaxTotalTokens: &tokens, Deadline: &deadline,
				CorrelationID: "c", Traceparent: "00-1", Metadata: []byte(`{"k":"v"}`), Input: input, InputSize: int64(len(input))}})
			if err != nil || made[0].Err != nil {
				t.Fatal(err, made)
			}
			clear(input) // its caller uses it again
		}
		for _, id := range []string{"first", "second"} {
			waits := &claim{ClaimRequest: request, Waiter: queue.NewWaiter()}
			waits.part = Key.In(s.DB.Writer)
			served := make(chan error, 1)
			go func() { served <- queue.Await(t.Context(), s.DB.Writer, waits, &waits.Waiter) }()
			for parked := 0; parked < 2; { // the later one comes after a look that found nothing
				waiting, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (bool, error) { return len(t.w.Waiters) > 0, nil })
				if err != nil {
					t.Fatal(err)
				}
				if waiting {
					parked++
				}
			}
			submit(id)
			if err := <-served; err != nil {
				t.Fatal(err)
			}
			handed := waits.deliveries[0]
			if err := s.Jobs.Release(t.Context(), &handed, 0, ""); err != nil {
				t.Fatal(err)
			}
			again, err := s.Jobs.Claim(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			read := again[0]
			same := read
			same.Lock, same.LockedAt, same.LockedUntil, same.ScheduledAt = handed.Lock, handed.LockedAt, handed.LockedUntil, handed.ScheduledAt
			if !reflect.DeepEqual(handed, same) {
				t.Errorf("handed over:\n%+v\nread:\n%+v", handed, same)
			}
			if err := s.Jobs.Succeed(t.Context(), &read, AttemptRecord{Deployment: "sim", Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
				t.Fatal(err)
			}
			events, err := s.Jobs.Events(t.Context(), read.Seq, 0, 100)
			if err != nil || len(events) != 3 {
				t.Errorf("events: %v %v", events, err)
			}
		}
	})
}
