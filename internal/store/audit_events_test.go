package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/pgtest"
)

// Each event of a listed type is one entry of the log, whoever of several processes made it, whatever ran beside it,
// and no other is one.
func TestAuditOfJobEvents(t *testing.T) {
	t.Parallel()
	for name, listed := range map[string][]forebay.EventType{
		"all": forebay.JobEventTypes, "some": {forebay.EventDeadLettered, forebay.EventExpired, forebay.EventStarted}, "none": nil,
	} {
		for kind, database := range engines {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				where := database(t)
				stores := []*Store{openAuditing(t, where, listed)}
				if kind == "postgresql" {
					stores = append(stores, openAuditing(t, where, listed))
				}
				for _, s := range stores {
					t.Cleanup(func() { s.DB.Close() })
				}
				testAuditOfJobEvents(t, stores, listed)
			})
		}
	}
}

func testAuditOfJobEvents(t *testing.T, stores []*Store, listed []forebay.EventType) {
	const each, output, prompt = 6, "an answer", "a question"
	ctx, s := t.Context(), stores[0]
	tenant, queue := tenantOf(t, s, "acme"), queueOf(t, s, "summaries")
	fates := []string{"succeed", "retry", "throttle", "dead-letter", "quarantine", "lose", "cancel", "expire"}
	together := func(n int, do func(i int, s *Store) error) {
		t.Helper()
		var callers sync.WaitGroup
		for i := range n {
			callers.Go(func() {
				if err := do(i, stores[i%len(stores)]); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
	}

	var mu sync.Mutex
	jobs := map[int64]NewJob{} // by number
	together(each*len(fates), func(i int, s *Store) error {
		fate := fates[i%len(fates)]
		j := NewJob{ID: fmt.Sprintf("job_%s_%d", fate, i/len(fates)), Tenant: tenant, Queue: queue, Task: fate, MaxAttempts: 5,
			Input: []byte(prompt), InputSize: int64(len(prompt)), CorrelationID: "order-4711"}
		made, err := s.Jobs.Submit(ctx, []NewJob{j})
		if err != nil || made[0].Err != nil {
			return fmt.Errorf("%w, %+v", err, made)
		}
		mu.Lock()
		defer mu.Unlock()
		jobs[made[0].Seq] = j
		return nil
	})
	all := len(jobs)
	failed := func(outcome forebay.Outcome) AttemptRecord {
		return AttemptRecord{Outcome: outcome, ErrorClass: forebay.ClassPermanent, ErrorCode: "http_500", ErrorMessage: []byte("cannot say " + prompt)}
	}
	succeed := func(s *Store, d *Delivery) error {
		return s.Jobs.Succeed(ctx, d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte(output), Size: int64(len(output))})
	}
	deliveries := take(t, s, SubqueueOf(queue, SubqueueMain), all, time.Minute)
	together(all, func(i int, s *Store) error {
		d := &deliveries[i]
		switch d.Task {
		case "retry":
			return s.Jobs.Retry(ctx, d, failed(forebay.OutcomeRetried))
		case "throttle":
			return s.Jobs.Throttle(ctx, d, failed(forebay.OutcomeThrottled), forebay.WaitSchedule)
		case "dead-letter":
			return s.Jobs.SetAside(ctx, d, failed(forebay.OutcomeFailed), SubqueueDeadLetter, "it failed")
		case "quarantine":
			return s.Jobs.SetAside(ctx, d, failed(forebay.OutcomeFailed), SubqueueQuarantine, "it failed")
		case "cancel":
			_, err := s.Jobs.Cancel(ctx, d.Seq)
			return err
		case "expire":
			return s.Jobs.Expire(ctx, d, failed(forebay.OutcomeFailed))
		case "lose": // the next claim finds that it was delivered as often as it may
			_, err := transactIn(ctx, queueKey, s.DB.writer, op{stage: stageChange}, func(t *queueTx) (int, error) {
				t.wakes(d.Subqueue, t.now)
				return t.prep("UPDATE messages SET visible = ?, deliveries = 3 WHERE seq = ?").int(t.now).int(d.Seq).count()
			})
			return err
		}
		return succeed(s, d)
	})
	again := append(take(t, s, SubqueueOf(queue, SubqueueRetry), each, time.Minute), take(t, s, SubqueueOf(queue, SubqueueMain), each, time.Minute)...)
	together(len(again), func(i int, s *Store) error { return succeed(s, &again[i]) })
	for seq, j := range jobs {
		if j.Task == "dead-letter" {
			if ok, err := s.Jobs.Redrive(ctx, []Redrive{{Seq: seq}}, Audit{}); err != nil || !ok[0] {
				t.Fatal(ok, err)
			}
		}
	}

	want, kinds := map[string]int{}, map[forebay.EventType]int{}
	for seq, j := range jobs {
		events, err := s.Jobs.Events(ctx, seq, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			kinds[e.Type]++
			if !slices.Contains(listed, e.Type) {
				continue
			}
			detail := auditedEvent{Number: e.Number, Queue: "summaries", Task: j.Task, Generation: e.Generation, Attempt: e.Attempt, ErrorCode: e.ErrorCode}
			if e.ErrorClass != nil {
				detail.ErrorClass = *e.ErrorClass
			}
			text, err := json.Marshal(detail)
			if err != nil {
				t.Fatal(err)
			}
			want[fmt.Sprintln("acme", forebay.ServerActor, e.Type, j.ID, e.At.UnixMilli(), string(text))]++
		}
	}
	for _, kind := range forebay.JobEventTypes {
		if kinds[kind] == 0 {
			t.Errorf("no job was %s", kind)
		}
	}
	entries, _, err := s.Audit.AuditEntries(ctx, forebay.AuditFilter{}, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		key := fmt.Sprintln(e.Tenant, e.Actor, e.Action, e.Target, e.At.UnixMilli(), e.Detail)
		if want[key]--; want[key] < 0 {
			t.Errorf("an entry too many: %s", key)
		}
		if text := fmt.Sprint(e); strings.Contains(text, prompt) || strings.Contains(text, output) {
			t.Errorf("an entry holds what a job was given or made: %s", text)
		}
	}
	for key, n := range want {
		if n > 0 {
			t.Errorf("%d entries are missing: %s", n, key)
		}
	}
	if v := verifyAll(t, s, forebay.AuditHead{}, 50); !v.Intact {
		t.Errorf("the chain: %+v", v.Broken)
	}
}

// An entry is of the job as it was: it may be changed, and purged, in the same transaction.
func TestAuditOfAJobThatGoesOn(t *testing.T) {
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			where := database(t)
			s := openAuditing(t, where, []forebay.EventType{forebay.EventDeadLettered, forebay.EventCancelled})
			t.Cleanup(func() { s.DB.Close() })
			tenant, queue := tenantOf(t, s, "acme"), queueOf(t, s, "q")
			put(t, s, tenant, queue, 2, nil)
			jobs := take(t, s, SubqueueOf(queue, SubqueueMain), 2, time.Minute)
			ends := inOneTransaction(t, s, func() error {
				return s.Jobs.SetAside(t.Context(), &jobs[0], AttemptRecord{Outcome: forebay.OutcomeFailed}, SubqueueDeadLetter, "it failed")
			}, func() error {
				_, err := s.Jobs.Redrive(t.Context(), []Redrive{{Seq: jobs[0].Seq, Edit: &RedriveEdit{Task: "another"}}}, Audit{Action: "redrive"})
				return err
			}, func() error {
				_, err := s.Jobs.Cancel(t.Context(), jobs[1].Seq)
				return err
			}, func() error {
				soon := PurgeQuery{Ended: map[forebay.Status]time.Time{forebay.StatusCancelled: time.Now().Add(time.Hour)}}
				purged, err := s.Jobs.PurgeStep(t.Context(), soon, PurgeStep{First: jobs[1].Seq, Last: jobs[1].Seq}, &Audit{Action: "purge"})
				if err == nil && purged.Jobs != 1 {
					err = fmt.Errorf("purged %+v", purged)
				}
				return err
			})
			for _, err := range ends {
				if err != nil {
					t.Error(err)
				}
			}
			entries, _, err := s.Audit.AuditEntries(t.Context(), forebay.AuditFilter{}, 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range slices.Backward(entries) {
				var detail auditedEvent
				_ = json.Unmarshal([]byte(e.Detail), &detail) // an act's may be empty
				got = append(got, fmt.Sprint(e.Action, " ", e.Target, " ", detail.Task, " ", e.At.UnixMilli() == entries[0].At.UnixMilli()))
			}
			want := []string{"dead_lettered " + jobs[0].ID + " echo true", "redrive   true", "cancelled " + jobs[1].ID + " echo true", "purge   true"}
			if !slices.Equal(got, want) {
				t.Errorf("got %q\nwant %q", got, want)
			}
			if v := verifyAll(t, s, forebay.AuditHead{}, 50); !v.Intact {
				t.Errorf("the chain: %+v", v.Broken)
			}
		})
	}
}

// Entries of one transaction are one statement on PostgreSQL; those that are no events of jobs are one more.
func TestAuditEntriesGoTogether(t *testing.T) {
	s := openServing(t, Options{URL: pgtest.Database(t)})
	defer s.DB.Close()
	const entries = 256
	for statements, a := range map[int]Audit{1: {Actor: forebay.ServerActor, Action: string(forebay.EventDeadLettered)}, 2: {Actor: "key_1", Action: "a"}} {
		_, err := transactIn(t.Context(), auditKey, s.DB.writer, op{stage: stageChange}, func(tx *auditTx) (int, error) {
			for i := range entries {
				a.Target = fmt.Sprint(i)
				if err := tx.append(a); err != nil {
					return 0, err
				}
			}
			waiting := tx.driver.(*postgresConn).groups
			if len(waiting) != statements {
				t.Errorf("%s: %d statements wait to be sent", a.Action, len(waiting))
			}
			for _, w := range waiting {
				if len(w.rows) != entries {
					t.Errorf("%s: one of %d rows waits to be sent", a.Action, len(w.rows))
				}
			}
			return 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if v := verifyAll(t, s, forebay.AuditHead{}, 3*entries); !v.Intact || v.Checked != 2*entries {
		t.Errorf("got %+v %+v", v, v.Broken)
	}
}

// The writer for new jobs takes its turn with all others when it has something for the log, and only then.
func TestAuditedSubmissionsAreAlone(t *testing.T) {
	for _, listed := range []bool{false, true} {
		t.Run(fmt.Sprint(listed), func(t *testing.T) {
			t.Parallel()
			where := Options{URL: pgtest.Database(t)}
			events := []forebay.EventType{forebay.EventDeadLettered}
			if listed {
				events = append(events, forebay.EventAccepted)
			}
			s := openAuditing(t, where, events)
			defer s.DB.Close()
			tenant, queue := tenantOf(t, s, "acme"), queueOf(t, s, "q")
			put(t, s, tenant, queue, 1, nil) // the first of a process is stored alone
			apart := false
			s.DB.beside.ops <- &request[int]{op: op{stage: stageSubmit}, done: make(chan struct{}), run: func(tx *tx) (int, error) { apart = tx.apart; return 0, nil }}
			put(t, s, tenant, queue, 1, nil)
			if apart == listed {
				t.Errorf("the transaction is alone: %t", !apart)
			}
		})
	}
}

// What a transaction that breaks had for the log goes with it: the one that does the same again appends it, once.
func TestAuditOfABrokenTransaction(t *testing.T) {
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			where := database(t)
			s := openAuditing(t, where, forebay.JobEventTypes)
			t.Cleanup(func() { s.DB.Close() })
			tenant, queue := tenantOf(t, s, "acme"), queueOf(t, s, "q")
			put(t, s, tenant, queue, 1, nil)
			d := take(t, s, SubqueueOf(queue, SubqueueMain), 1, time.Minute)
			broken := fmt.Errorf("the transaction breaks")
			ends := inOneTransaction(t, s, func() error {
				return s.Jobs.SetAside(t.Context(), &d[0], AttemptRecord{Outcome: forebay.OutcomeFailed}, SubqueueDeadLetter, "it failed")
			}, func() error {
				_, err := transact(context.Background(), s.DB.writer, op{stage: stageChange}, func(*tx) (int, error) { return 0, broken })
				return err
			})
			if ends[0] != nil || ends[1] == nil {
				t.Error(ends)
			}
			entries, _, err := s.Audit.AuditEntries(t.Context(), forebay.AuditFilter{}, 0, 10)
			if err != nil || len(entries) != 4 { // accepted, started, failed, dead_lettered: the second try has made the last two
				t.Errorf("%+v (%v)", entries, err)
			}
			if v := verifyAll(t, s, forebay.AuditHead{}, 50); !v.Intact {
				t.Errorf("the chain: %+v", v.Broken)
			}
		})
	}
}

// openAuditing opens a database whose audit log is to have events of these types.
func openAuditing(t *testing.T, where Options, listed []forebay.EventType) *Store {
	where.Serve = true
	s, err := Open(t.Context(), where, Settings{AuditEvents: listed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
