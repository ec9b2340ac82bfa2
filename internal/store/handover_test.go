package store

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// Jobs of several queues are submitted, claimed in handfuls, retried and ended, all at once: each is
// delivered in its own subqueue, to one worker at a time, and ends.
func TestManySubqueuesAtOnce(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		tenant := tenantOf(t, s, "default")
		const queues, each = 3, 400
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var held sync.Map // job → true from its delivery on, unless it is retried
		var ended atomic.Int64
		var workers, producers sync.WaitGroup
		for q := range queues {
			queue, err := s.Queues.EnsureQueue(ctx, fmt.Sprintf("q%d", q))
			if err != nil {
				t.Fatal(err)
			}
			for _, kind := range []SubqueueKind{SubqueueMain, SubqueueRetry} {
				for range 3 {
					workers.Go(func() {
						for {
							got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: SubqueueOf(queue, kind), Max: 7, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3})
							if err != nil {
								return
							}
							for i := range got {
								d := &got[i]
								if _, taken := held.LoadOrStore(d.ID, true); taken {
									t.Errorf("%s is delivered twice", d.ID)
								}
								if d.Subqueue != SubqueueOf(queue, kind) || d.Task != fmt.Sprint(queue) {
									t.Errorf("%s of queue %s came to lane %d", d.ID, d.Task, d.Subqueue)
								}
								record := AttemptRecord{Deployment: "sim", Outcome: forebay.OutcomeRetried, ErrorClass: forebay.ClassTransient, ErrorCode: "503"}
								if d.Seq%3 == 0 && kind == SubqueueMain {
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
						made, err := s.Jobs.Submit(ctx, []NewJob{{ID: fmt.Sprintf("job-%d-%d-%d", q, p, n), Tenant: tenant, Queue: queue, Task: fmt.Sprint(queue),
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

// What a worker gets of a job is the same whether the job was handed over as it was submitted or read
// from the database later.
func TestHandedOverAsStored(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		tenant := tenantOf(t, s, "default")
		queue := queueOf(t, s, "q")
		request := ClaimRequest{Subqueue: SubqueueOf(queue, SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 3}
		submit := func(id string) {
			cost, tokens, deadline := 3*forebay.Dollar, int64(5000), time.Now().Add(time.Hour)
			input := []byte(`{"a":1}`)
			made, err := s.Jobs.Submit(t.Context(), []NewJob{{ID: id, Tenant: tenant, Queue: queue, Task: "t", Priority: 7, MaxAttempts: 4, MaxCost: &cost, MaxTotalTokens: &tokens, Deadline: &deadline,
				CorrelationID: "c", Traceparent: "00-1", Metadata: []byte(`{"k":"v"}`), Input: input, InputSize: int64(len(input))}})
			if err != nil || made[0].Err != nil {
				t.Fatal(err, made)
			}
			clear(input) // its caller uses it again
		}
		for _, id := range []string{"first", "second"} {
			waits := &claim{ClaimRequest: request, waiter: newWaiter()}
			waits.part = jobsKey.in(s.DB.writer)
			s.DB.writer.visits <- waits
			for range 2 { // transactions, of which the later one comes after a look that found nothing
				if _, err := transact(t.Context(), s.DB.writer, op{stage: stageChange}, func(*tx) (struct{}, error) { return struct{}{}, nil }); err != nil {
					t.Fatal(err)
				}
			}
			submit(id)
			<-waits.answer
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
