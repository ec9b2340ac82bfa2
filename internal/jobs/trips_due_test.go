package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// tripsOfJobs prepares mixes of operations whose round trips are counted.
type tripsOfJobs struct {
	*testing.T
	s      *stores
	tenant int64
	serial int
}

func (j *tripsOfJobs) newQueue() int64 {
	j.serial++
	return queueOf(j.T, j.s, fmt.Sprint("more", j.serial))
}

func (j *tripsOfJobs) claimRequest(q int64, many int, lock time.Duration) ClaimRequest {
	return ClaimRequest{Subqueue: queue.SubqueueOf(q, queue.SubqueueMain), Max: many, MaxBytes: 1 << 20, Lock: lock, MaxDeliveries: 3,
		FailureSubqueue: queue.SubqueueDeadLetter, Plan: paidPlan}
}

// locked are jobs of a queue under locks.
func (j *tripsOfJobs) locked(q int64, many int, lock time.Duration, change func(i int, j *NewJob)) []LockedJob {
	j.Helper()
	i := 0
	put(j.T, j.s, j.tenant, q, many, func(n *NewJob) {
		if change != nil {
			change(i, n)
		}
		i++
	})
	got, err := j.s.Jobs.Claim(j.Context(), j.claimRequest(q, many, lock))
	if err != nil || len(got) != many {
		j.Fatalf("claimed %d of %d: %v", len(got), many, err)
	}
	return got
}

// deadLetters are the numbers of dead letters of a queue.
func (j *tripsOfJobs) deadLetters(many int, change func(i int, n *NewJob)) (seqs []int64) {
	j.Helper()
	attempt := AttemptRecord{Outcome: forebay.OutcomeFailed, ErrorClass: forebay.ClassPermanent, ErrorCode: "bad"}
	for _, d := range j.locked(j.newQueue(), many, time.Minute, change) {
		mustDo(j.T, j.s.Jobs.DeadLetter(j.Context(), &d, attempt, queue.SubqueueDeadLetter, "bad"))
		seqs = append(seqs, d.Seq)
	}
	return seqs
}

// waits has claims wait for the jobs of new queues. They end when the test does.
func (j *tripsOfJobs) waits(many int) (queues []int64) {
	for range many {
		q := j.newQueue()
		queues = append(queues, q)
		go func() { _, _ = j.s.Jobs.Claim(j.Context(), j.claimRequest(q, 2, time.Minute)) }()
	}
	return queues
}

func (j *tripsOfJobs) plain(q int64) NewJob {
	j.serial++
	return NewJob{ID: fmt.Sprintf("job_more_%d_%d", j.tenant, j.serial), Tenant: j.tenant, Queue: q, Task: "echo", MaxAttempts: 5, Input: []byte("1"), InputSize: 1}
}

// afterwards is a call that gives a job back once so much time has passed: what has become due by
// then comes into its transaction.
func (j *tripsOfJobs) afterwards(pause time.Duration) []func() error {
	locked := j.locked(j.newQueue(), 1, time.Minute, nil)
	return []func() error{func() error {
		<-time.After(pause)
		return j.s.Jobs.Release(j.Context(), &locked[0], time.Hour, "")
	}}
}

// deadlines submits jobs with a deadline that is near, and returns after which time it has passed.
// It is later where submitting takes so long that the deadline passes meanwhile.
func (j *tripsOfJobs) deadlines(many int) time.Duration {
	q := j.newQueue()
	for wait := 400 * time.Millisecond; ; wait *= 2 {
		at := time.Now().Add(wait)
		list := make([]NewJob, many)
		for i := range list {
			list[i] = j.plain(q)
			list[i].Deadline, list[i].SessionID = &at, list[i].ID
		}
		results, err := j.s.Jobs.Submit(j.Context(), list)
		if err != nil {
			j.Fatal(err)
		}
		late := slices.IndexFunc(results, func(r Submitted) bool { return r.Err != nil })
		if late < 0 {
			return wait + 200*time.Millisecond
		}
		if wait > time.Minute {
			j.Fatal(results[late].Err)
		}
	}
}

func (j *tripsOfJobs) redrives(seqs []int64, atOnce int, edit *RedriveEdit) (calls []func() error) {
	for len(seqs) > 0 {
		var list []Redrive
		for _, seq := range seqs[:min(atOnce, len(seqs))] {
			list = append(list, Redrive{Seq: seq, Edit: edit})
		}
		seqs = seqs[len(list):]
		calls = append(calls, func() error {
			done, err := j.s.Jobs.Redrive(j.Context(), list, audit.Act{Action: "redrive"})
			for _, one := range done {
				if err == nil && !one {
					err = fmt.Errorf("not redriven")
				}
			}
			return err
		})
	}
	return calls
}

func (j *tripsOfJobs) mixes() map[string]func(many int) []func() error {
	ctx, store := j.Context(), j.s.Jobs
	sessionEach := func(i int, n *NewJob) { n.SessionID = fmt.Sprint("s", i) }
	edit := &RedriveEdit{Task: "another", MaxAttempts: 2, Input: []byte("2"), InputSize: 1}
	purges := func(seqs []int64, atOnce int) (calls []func() error) {
		for len(seqs) > 0 {
			var list []Purge
			for _, seq := range seqs[:min(atOnce, len(seqs))] {
				list = append(list, Purge{Seq: seq})
			}
			seqs = seqs[len(list):]
			calls = append(calls, func() error {
				n, err := store.PurgeDeadLetters(ctx, list, audit.Act{Action: "purge"})
				if err == nil && n != len(list) {
					err = fmt.Errorf("purged %d", n)
				}
				return err
			})
		}
		return calls
	}
	return map[string]func(many int) []func() error{
		"redrive":              func(many int) []func() error { return j.redrives(j.deadLetters(many, nil), 1, nil) },
		"redrive at once":      func(many int) []func() error { return j.redrives(j.deadLetters(many, nil), many, nil) },
		"redrive sessions":     func(many int) []func() error { return j.redrives(j.deadLetters(many, sessionEach), 1, nil) },
		"redrive with an edit": func(many int) []func() error { return j.redrives(j.deadLetters(many, nil), 1, edit) },
		"discard":              func(many int) []func() error { return purges(j.deadLetters(many, nil), 1) },
		"discard at once":      func(many int) []func() error { return purges(j.deadLetters(many, nil), many) },
		"submit at once": func(many int) []func() error {
			q := j.newQueue()
			var list []NewJob
			for i := range many {
				n := j.plain(q)
				n.SessionID, n.IdempotencyKey, n.BodyHash = fmt.Sprint("s", i), n.ID, []byte("h")
				list = append(list, n)
			}
			return []func() error{func() error { _, err := store.Submit(ctx, list); return err }}
		},
		"submit to many that wait": func(many int) (calls []func() error) {
			for _, q := range j.waits(many) {
				n := j.plain(q)
				calls = append(calls, func() error { _, err := store.Submit(ctx, []NewJob{n}); return err })
			}
			return calls
		},
		"release to many that wait": func(many int) (calls []func() error) {
			queues := make([]int64, many)
			var locked []LockedJob
			for i := range queues {
				queues[i] = j.newQueue()
				locked = append(locked, j.locked(queues[i], 1, time.Minute, nil)...)
				go func() { _, _ = store.Claim(ctx, j.claimRequest(queues[i], 2, time.Minute)) }()
			}
			for i := range locked {
				calls = append(calls, func() error { return store.Release(ctx, &locked[i], 0, "") })
			}
			return calls
		},
		"deadlines": func(many int) []func() error {
			return j.afterwards(j.deadlines(many))
		},
		"schedules of many queues": func(many int) []func() error {
			at := time.Now().Add(400 * time.Millisecond)
			for _, q := range j.waits(many) {
				put(j.T, j.s, j.tenant, q, 1, func(n *NewJob) { n.ScheduledAt = &at })
			}
			return j.afterwards(600 * time.Millisecond)
		},
		"lost locks": func(many int) []func() error {
			q := j.newQueue()
			j.locked(q, many, 300*time.Millisecond, nil)
			go func() { _, _ = store.Claim(ctx, j.claimRequest(q, many, time.Minute)) }()
			return j.afterwards(600 * time.Millisecond)
		},
	}
}

// What operators change in bulk, and what becomes due, takes no more round trips if it is more.
// Left out on purpose are single changes by operators: a key, a queue, a tenant's limit, a budget,
// a deployment's pause. They are rare, and each takes trips of its own.
func TestRoundTripsOfBulkAndDueJobs(t *testing.T) {
	t.Parallel()
	trips := fixture.Trips(t)
	for _, kind := range []string{"plain", "paid", "followed"} {
		j := &tripsOfJobs{T: t, s: trips.Stores, tenant: tenantNamed(t, trips.Stores, kind)}
		switch kind {
		case "paid":
			limit := int64(1 << 40)
			mustDo(t, setBudget(j.s, j.tenant, "", forebay.Budget{DailyTokens: &limit}, audit.Act{Tenant: kind, Actor: "key_1", Action: "set-budget"}))
		case "followed":
			j.follow(kind)
		}
		for name, mix := range j.mixes() {
			trips.Together(t, name+", "+kind, func() []func() error { return mix(24) })
		}
	}
	trips.Plans(t)
}

// A budget holds the jobs of a tenant back. Jobs that end make room in it, and as many of those
// that wait for it are resumed. More of them take no more round trips.
func TestRoundTripsOfJobsThatWaitForABudget(t *testing.T) {
	t.Parallel()
	const many = 24
	trips := fixture.Trips(t)
	for kind, keys := range map[string]int{"of the tenant": 0, "of each key": many} {
		for _, waiting := range []bool{false, true} {
			for try := range 3 {
				name := fmt.Sprint("budget ", kind, ", a claim waits: ", waiting, " ", try)
				trips.Together(t, name, func() []func() error { return tripsOfBudget(t, trips.Stores, name, many, keys, waiting) })
			}
		}
	}
	trips.Plans(t)
}

// tripsOfBudget returns calls that end jobs and so make room for as many others. Those wait for
// the tenant's budget, or each for that of its key.
func tripsOfBudget(t *testing.T, s *stores, tenant string, many, keys int, waiting bool) (calls []func() error) {
	name := fmt.Sprint(tenant, time.Now().UnixNano())
	j := &tripsOfJobs{T: t, s: s, tenant: tenantNamed(t, s, name)}
	q := queueOf(t, s, name)
	hold := needOf(0).Tokens
	limit := hold * int64(many)
	act := audit.Act{Tenant: name, Actor: "key_1", Action: "set-budget"}
	mustDo(t, setBudget(s, j.tenant, "", forebay.Budget{DailyTokens: &limit}, act))
	for i := range keys {
		mustDo(t, setBudget(s, j.tenant, fmt.Sprint("key_", i), forebay.Budget{DailyTokens: &hold}, act))
	}
	i := 0
	put(t, s, j.tenant, q, 2*many, func(n *NewJob) {
		if n.Task = "t0"; keys > 0 {
			n.KeyID = fmt.Sprint("key_", i%keys)
		}
		i++
	})
	locked, err := s.Jobs.Claim(t.Context(), j.claimRequest(q, 2*many, time.Minute))
	if err != nil || len(locked) != many {
		t.Fatalf("%d jobs of %d fit, not %d: %v", len(locked), 2*many, many, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if more, err := s.Jobs.Claim(ctx, j.claimRequest(q, many, time.Minute)); len(more) > 0 || err != nil && ctx.Err() == nil {
		t.Fatal(more, err)
	}
	resumed := func() (n int64) {
		mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
			_, err := c.Prep("SELECT count(*) FROM messages WHERE subqueue = ? AND waiting IS NULL").Int(int64(queue.SubqueueOf(q, queue.SubqueueMain))).One(func(r driver.Row) { n = r.Int(0) })
			return err
		}))
		return n
	}
	if n := resumed(); n != int64(many) {
		t.Fatalf("%d jobs do not wait", n)
	}
	if waiting {
		go func() { _, _ = s.Jobs.Claim(t.Context(), j.claimRequest(q, 2*many, time.Minute)) }()
	}
	var ended atomic.Int64
	for i := range locked {
		calls = append(calls, func() error {
			a := AttemptRecord{Deployment: "d", Outcome: forebay.OutcomeSucceeded, Usage: forebay.TokenUsage{}}
			if err := s.Jobs.Succeed(t.Context(), &locked[i], a, Output{Inline: []byte("1"), Size: 1}); err != nil {
				return err
			}
			if n := resumed(); ended.Add(1) == int64(many) && n != int64(many) {
				return fmt.Errorf("%d jobs were resumed, not %d", n, many)
			}
			return nil
		})
	}
	return calls
}

// follow has the tenant's events go to a subscription.
func (j *tripsOfJobs) follow(tenant string) {
	settings := bus.MessageQueue{Tenant: j.tenant, Lock: time.Minute, MaxDeliveries: 5}
	topic, sub := settings, settings
	topic.Name, topic.IsTopic = tenant+"/"+forebay.TopicJobEvents, true
	topic, _, err := j.s.Bus.PutMessageQueue(context.Background(), topic, 10)
	mustDo(j.T, err)
	sub.Name = entity.SubscriptionName(topic.Name, "all")
	_, _, err = j.s.Bus.PutSubscription(context.Background(), topic, sub, []bus.Rule{{Name: "$Default", Settings: forebay.RuleSettings{SQLFilter: "1 = 1"}}}, 10)
	mustDo(j.T, err)
}
