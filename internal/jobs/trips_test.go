package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
)

// transitionsOf are the transitions of a job that is locked.
func transitionsOf(ctx context.Context, s *stores) map[string]func(d *LockedJob) error {
	attempt := AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassTransient, ErrorCode: "upstream_500", RetryDelay: time.Minute}
	return map[string]func(d *LockedJob) error{
		"succeed": func(d *LockedJob) error {
			return s.Jobs.Succeed(ctx, d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1})
		},
		"retry":     func(d *LockedJob) error { return s.Jobs.Retry(ctx, d, attempt) },
		"throttle":  func(d *LockedJob) error { return s.Jobs.Throttle(ctx, d, attempt, forebay.WaitQuota) },
		"release":   func(d *LockedJob) error { return s.Jobs.Release(ctx, d, time.Minute, "") },
		"interrupt": func(d *LockedJob) error { return s.Jobs.Interrupt(ctx, d, attempt) },
		"lose":      func(d *LockedJob) error { return s.Jobs.Lose(ctx, d, attempt) },
		"dead-letter": func(d *LockedJob) error {
			return s.Jobs.DeadLetter(ctx, d, attempt, queue.SubqueueDeadLetter, "max_attempts")
		},
		"quarantine": func(d *LockedJob) error {
			return s.Jobs.DeadLetter(ctx, d, attempt, queue.SubqueueQuarantine, "poison")
		},
		"expire": func(d *LockedJob) error { return s.Jobs.Expire(ctx, d, attempt) },
		"renew": func(d *LockedJob) error {
			held, err := s.Jobs.Renew(ctx, []queue.Lock{d.Lock}, time.Minute)
			if err == nil && !held[0] {
				err = fmt.Errorf("the lock is lost")
			}
			return err
		},
		"cancel": func(d *LockedJob) error {
			c, err := s.Jobs.Cancel(ctx, d.Seq)
			if err == nil && !c.Cancelled {
				err = fmt.Errorf("not cancelled")
			}
			return err
		},
	}
}

// BenchmarkFarAway measures each transition on a PostgreSQL that is 0, 1 and 5 ms away.
func BenchmarkFarAway(b *testing.B) {
	fixture.FarAway(b, func(t testing.TB, s *stores) map[string]func(n int) []func() error {
		ctx, serial := context.Background(), 0
		kinds := map[string]func(n int) []func() error{}
		operations := transitionsOf(ctx, s)
		operations["read"] = func(d *LockedJob) error {
			_, err := s.Jobs.Job(ctx, d.Tenant, d.ID)
			return err
		}
		for name, operation := range operations {
			kinds[name] = func(n int) (calls []func() error) {
				serial++
				tenant, q := tenantNamed(t, s, "globex"), queueOf(t, s, fmt.Sprint("q", serial))
				for len(calls) < n {
					many := min(n-len(calls), 500)
					list := make([]NewJob, many)
					for i := range list {
						serial++
						list[i] = NewJob{ID: fmt.Sprint("job_far_", serial), Tenant: tenant, Queue: q, Task: "echo", MaxAttempts: 5}
					}
					_, err := s.Jobs.Submit(ctx, list)
					mustDo(t, err)
					got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(q, queue.SubqueueMain), Max: many, MaxBytes: 1 << 20,
						Lock: time.Hour, MaxDeliveries: 3, FailureSubqueue: queue.SubqueueDeadLetter})
					mustDo(t, err)
					for i := range got {
						calls = append(calls, func() error { return operation(&got[i]) })
					}
				}
				return calls
			}
		}
		return kinds
	})
}

// The round trips of a transaction on PostgreSQL do not grow with its operations, whichever they
// are. Each transition of a job has an entry here.
func TestRoundTripsOfJobs(t *testing.T) {
	t.Parallel()
	const n = 48
	trips := fixture.Trips(t)
	s := trips.Stores
	tenant, other := tenantNamed(t, s, "acme"), tenantNamed(t, s, "globex")
	limit := int64(1 << 40)
	mustDo(t, setBudget(s, tenant, "", forebay.Budget{DailyTokens: &limit}, audit.Act{Tenant: "acme", Actor: "key_1", Action: "set-budget"}))
	ctx := t.Context()
	transitions := transitionsOf(ctx, s)
	answers := func(to, session string) func(int, *NewJob) {
		return func(i int, j *NewJob) {
			var err error
			j.Reply, err = request.EncodeReply("globex", &forebay.ReplyTo{Entity: to, SessionID: strings.ReplaceAll(session, "%d", fmt.Sprint(i)), CorrelationID: fmt.Sprint("m", i)})
			mustDo(t, err)
		}
	}
	kinds := map[string]func(i int, j *NewJob){
		"plain":     func(int, *NewJob) {},
		"budget":    func(_ int, j *NewJob) { j.Tenant = tenant },
		"session":   func(i int, j *NewJob) { j.SessionID = fmt.Sprint("s", i) },
		"answer":    answers("trips", ""),
		"sessions":  answers("sessions", "s%d"),
		"no answer": answers("none", ""),
		"topic":     answers("topic", ""),
		"activity?": func(i int, j *NewJob) { j.CorrelationID = CallerCorrelation(fmt.Sprint(i)) },
	}
	for _, q := range []bus.MessageQueue{{Name: "globex/trips", DuplicateWindow: time.Hour}, {Name: "globex/sessions", RequiresSession: true}, {Name: "globex/topic", IsTopic: true}} {
		q.Tenant, q.Lock, q.MaxDeliveries = other, time.Minute, 5
		_, _, err := s.Bus.PutMessageQueue(ctx, q, 10)
		mustDo(t, err)
	}
	serial := 0
	prepared := func(t *testing.T, many int, change func(int, *NewJob)) []LockedJob {
		serial++
		q := queueOf(t, s, fmt.Sprint("q", serial))
		i := 0
		put(t, s, other, q, many, func(j *NewJob) { change(i, j); i++ })
		got, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(q, queue.SubqueueMain), Max: many, MaxBytes: 1 << 20,
			Lock: time.Minute, MaxDeliveries: 3, FailureSubqueue: queue.SubqueueDeadLetter, Plan: paidPlan})
		if err != nil || len(got) != many {
			t.Fatalf("claimed %d of %d: %v", len(got), many, err)
		}
		return got
	}
	for name, transition := range transitions {
		for kind, change := range kinds {
			trips.Together(t, name+" "+kind, func() (calls []func() error) {
				locked := prepared(t, n, change)
				for i := range locked {
					calls = append(calls, func() error { return transition(&locked[i]) })
				}
				return calls
			})
		}
	}
	submits := func(kind string, n int) func() []func() error {
		return func() (calls []func() error) {
			serial++
			q := queueOf(t, s, fmt.Sprint("q", serial))
			for i := range n {
				j := NewJob{ID: fmt.Sprintf("job_%d_%d", serial, i), Tenant: other, Queue: q, Task: "echo", MaxAttempts: 5}
				switch kind {
				case "session":
					j.SessionID = fmt.Sprint("s", i)
				case "one session":
					j.SessionID = "s"
				case "idempotent":
					j.IdempotencyKey, j.BodyHash = j.ID, []byte("h")
				}
				calls = append(calls, func() error { _, err := s.Jobs.Submit(ctx, []NewJob{j}); return err })
			}
			return calls
		}
	}
	ways := []string{"plain", "session", "one session", "idempotent"}
	for _, kind := range ways {
		trips.Together(t, "submit "+kind, submits(kind, n))
	}
	trips.Together(t, "all", func() (calls []func() error) {
		for _, transition := range transitions {
			for _, change := range kinds {
				locked := prepared(t, 8, change)
				for i := range locked {
					calls = append(calls, func() error { return transition(&locked[i]) })
				}
			}
		}
		for _, kind := range ways {
			calls = append(calls, submits(kind, 8)()...)
		}
		return calls
	})
	trips.Plans(t)
}

// Codes of errors that an hour of a tenant has not seen are looked for together. So a storm of
// failures takes no more round trips if it is of many tenants.
func TestRoundTripsOfNewErrorCodes(t *testing.T) {
	t.Parallel()
	const many = 16
	trips := fixture.Trips(t)
	j := &tripsOfJobs{T: t, s: trips.Stores, tenant: tenantNamed(t, trips.Stores, "acme")}
	trips.Together(t, "new error codes", func() (calls []func() error) {
		locked := j.locked(j.newQueue(), many, time.Minute, func(i int, n *NewJob) { n.Tenant = tenantNamed(t, j.s, fmt.Sprint("tenant", i)) })
		for i := range locked {
			attempt := AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassTransient, ErrorCode: fmt.Sprint("code_", j.serial), RetryDelay: time.Minute}
			calls = append(calls, func() error { return j.s.Jobs.Retry(t.Context(), &locked[i], attempt) })
		}
		return calls
	})
	trips.Plans(t)
}
