package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/raced"
)

// Each event of a listed type is one entry of the log, whichever process made it and whatever ran
// beside it. No other event is an entry.
func TestAuditOfJobEvents(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	for name, listed := range map[string][]forebay.EventType{
		"all": forebay.JobEventTypes, "some": {forebay.EventDeadLettered, forebay.EventExpired, forebay.EventStarted}, "none": nil,
	} {
		for kind, database := range dbtest.Databases {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				where := database(t)
				processes := []*stores{openAuditing(t, where, listed)}
				if kind == "postgresql" {
					processes = append(processes, openAuditing(t, where, listed))
				}
				for _, s := range processes {
					t.Cleanup(func() { s.DB.Close() })
				}
				testAuditOfJobEvents(t, processes, listed)
			})
		}
	}
}

func testAuditOfJobEvents(t *testing.T, processes []*stores, listed []forebay.EventType) {
	const each, output, prompt = 6, "an answer", "a question"
	ctx, s := t.Context(), processes[0]
	tenant, queueID := tenantNamed(t, s, "acme"), queueOf(t, s, "summaries")
	fates := []string{"succeed", "retry", "throttle", "dead-letter", "quarantine", "lose", "cancel", "expire"}
	together := func(n int, do func(i int, s *stores) error) {
		t.Helper()
		var callers sync.WaitGroup
		for i := range n {
			callers.Go(func() {
				if err := do(i, processes[i%len(processes)]); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
	}

	var mu sync.Mutex
	jobs := map[int64]NewJob{} // by number
	together(each*len(fates), func(i int, s *stores) error {
		fate := fates[i%len(fates)]
		j := NewJob{ID: fmt.Sprintf("job_%s_%d", fate, i/len(fates)), Tenant: tenant, Queue: queueID, Task: fate, MaxAttempts: 5,
			Input: []byte(prompt), InputSize: int64(len(prompt)), CorrelationID: "order-4711"}
		if fate == "succeed" { // its answer finds no entity
			var err error
			if j.Reply, err = request.EncodeReply("acme", &forebay.ReplyTo{Entity: "nowhere", CorrelationID: "m"}); err != nil {
				return err
			}
		}
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
	succeed := func(s *stores, d *LockedJob) error {
		return s.Jobs.Succeed(ctx, d, AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte(output), Size: int64(len(output))})
	}
	deliveries := take(t, s, queue.SubqueueOf(queueID, queue.SubqueueMain), all, time.Minute)
	together(all, func(i int, s *stores) error {
		d := &deliveries[i]
		switch d.Task {
		case "retry":
			return s.Jobs.Retry(ctx, d, failed(forebay.OutcomeRetried))
		case "throttle":
			return s.Jobs.Throttle(ctx, d, failed(forebay.OutcomeThrottled), forebay.WaitSchedule)
		case "dead-letter":
			return s.Jobs.DeadLetter(ctx, d, failed(forebay.OutcomeFailed), queue.SubqueueDeadLetter, "it failed")
		case "quarantine":
			return s.Jobs.DeadLetter(ctx, d, failed(forebay.OutcomeFailed), queue.SubqueueQuarantine, "it failed")
		case "cancel":
			_, err := s.Jobs.Cancel(ctx, d.Seq)
			return err
		case "expire":
			return s.Jobs.Expire(ctx, d, failed(forebay.OutcomeFailed))
		case "lose": // the next claim finds that it was delivered as often as it may
			_, err := db.TransactIn(ctx, queue.Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *queue.Tx) (int, error) {
				t.WakeAt(d.Subqueue, t.Now)
				return t.Prep("UPDATE messages SET visible_at = ?, deliveries = 3 WHERE seq = ?").Int(t.Now).Int(d.Seq).Count()
			})
			return err
		}
		return succeed(s, d)
	})
	again := append(take(t, s, queue.SubqueueOf(queueID, queue.SubqueueRetry), each, time.Minute), take(t, s, queue.SubqueueOf(queueID, queue.SubqueueMain), each, time.Minute)...)
	together(len(again), func(i int, s *stores) error { return succeed(s, &again[i]) })
	for seq, j := range jobs {
		if j.Task == "dead-letter" {
			if ok, err := s.Jobs.Redrive(ctx, []Redrive{{Seq: seq}}, audit.Act{}); err != nil || !ok[0] {
				t.Fatal(ok, err)
			}
		}
	}

	want, kinds := map[string]int{}, map[forebay.EventType]int{}
	for seq, j := range jobs {
		told, err := s.Jobs.Events(ctx, seq, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range told {
			kinds[e.Type]++
			if !slices.Contains(listed, e.Type) {
				continue
			}
			detail := events.AuditedEvent{Number: e.Number, Queue: "summaries", Task: j.Task, Generation: e.Generation, Attempt: e.Attempt, ErrorCode: e.ErrorCode}
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
	entries, _, err := s.Audit.Entries(ctx, forebay.AuditFilter{}, 0, 10_000)
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
	checkChain(t, s)
}

// An entry is of the job as it was: it may be changed in the same transaction.
func TestAuditOfAJobThatGoesOn(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			where := database(t)
			s := openAuditing(t, where, []forebay.EventType{forebay.EventDeadLettered, forebay.EventCancelled})
			t.Cleanup(func() { s.DB.Close() })
			tenant, queueID := tenantNamed(t, s, "acme"), queueOf(t, s, "q")
			put(t, s, tenant, queueID, 2, nil)
			jobs := take(t, s, queue.SubqueueOf(queueID, queue.SubqueueMain), 2, time.Minute)
			ends := dbtest.InOneTransaction(t, s.DB, func() error {
				return s.Jobs.DeadLetter(t.Context(), &jobs[0], AttemptRecord{Outcome: forebay.OutcomeFailed}, queue.SubqueueDeadLetter, "it failed")
			}, func() error {
				_, err := s.Jobs.Redrive(t.Context(), []Redrive{{Seq: jobs[0].Seq, Edit: &RedriveEdit{Task: "another"}}}, audit.Act{Action: "redrive"})
				return err
			}, func() error {
				_, err := s.Jobs.Cancel(t.Context(), jobs[1].Seq)
				return err
			})
			for _, err := range ends {
				if err != nil {
					t.Error(err)
				}
			}
			entries, _, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{}, 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range slices.Backward(entries) {
				var detail events.AuditedEvent
				_ = json.Unmarshal([]byte(e.Detail), &detail) // an act's may be empty
				got = append(got, fmt.Sprint(e.Action, " ", e.Target, " ", detail.Task, " ", e.At.UnixMilli() == entries[0].At.UnixMilli()))
			}
			want := []string{"dead_lettered " + jobs[0].ID + " echo true", "redrive   true", "cancelled " + jobs[1].ID + " echo true"}
			if !slices.Equal(got, want) {
				t.Errorf("got %q\nwant %q", got, want)
			}
			checkChain(t, s)
		})
	}
}

// Entries of one transaction are one statement on PostgreSQL. Entries that are no events of jobs
// are one more.
func TestAuditEntriesGoTogether(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	url := dbtest.Postgres(t)
	s := fixture.Serve(t, db.Options{URL: url})
	defer s.DB.Close()
	admin, err := pgconn.Connect(t.Context(), url)
	mustDo(t, err)
	defer admin.Close(context.WithoutCancel(t.Context()))
	ask := func(sql string) [][][]byte {
		t.Helper()
		results, err := admin.Exec(t.Context(), sql).ReadAll()
		mustDo(t, err)
		return results[len(results)-1].Rows
	}
	ask(`CREATE TABLE forebay.statements (of text, added bigint);
		CREATE FUNCTION forebay.counted() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO forebay.statements SELECT TG_TABLE_NAME, count(*) FROM added; RETURN NULL; END';
		CREATE TRIGGER counted AFTER INSERT ON forebay.audit REFERENCING NEW TABLE AS added
			FOR EACH STATEMENT EXECUTE FUNCTION forebay.counted();
		CREATE TRIGGER counted AFTER INSERT ON forebay.audit_acts REFERENCING NEW TABLE AS added
			FOR EACH STATEMENT EXECUTE FUNCTION forebay.counted()`)
	const entries = 256
	for statements, a := range map[int]audit.Act{1: {Actor: forebay.ServerActor, Action: string(forebay.EventDeadLettered)}, 2: {Actor: "key_1", Action: "a"}} {
		_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(x *db.Tx) (int, error) {
			for i := range entries {
				a.Target = fmt.Sprint(i)
				if err := audit.Append(x, a); err != nil {
					return 0, err
				}
			}
			return 0, nil
		})
		mustDo(t, err)
		made := ask("DELETE FROM forebay.statements RETURNING of, added")
		if len(made) != statements {
			t.Errorf("%s: there were %d statements", a.Action, len(made))
		}
		for _, m := range made {
			if added := string(m[1]); added != fmt.Sprint(entries) {
				t.Errorf("%s: one added %s rows to %s", a.Action, added, m[0])
			}
		}
	}
	if n := checkChain(t, s); n != 2*entries {
		t.Errorf("there are %d entries", n)
	}
}

// The writer for new jobs runs alone when it has something for the audit log, and only then.
func TestAuditedSubmissionsAreAlone(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	for _, listed := range []bool{false, true} {
		t.Run(fmt.Sprint(listed), func(t *testing.T) {
			t.Parallel()
			where := db.Options{URL: dbtest.Postgres(t)}
			events := []forebay.EventType{forebay.EventDeadLettered}
			if listed {
				events = append(events, forebay.EventAccepted)
			}
			s := openAuditing(t, where, events)
			defer s.DB.Close()
			tenant, queue := tenantNamed(t, s, "acme"), queueOf(t, s, "q")
			put(t, s, tenant, queue, 1, nil) // the first of a process is stored alone
			apart := false
			s.DB.Inserter.Ops <- &db.Request[int]{Op: db.Op{Stage: db.StageSubmit}, Done: make(chan struct{}), Run: func(tx *db.Tx) (int, error) { apart = tx.Concurrent; return 0, nil }}
			put(t, s, tenant, queue, 1, nil)
			if apart == listed {
				t.Errorf("the transaction is alone: %t", !apart)
			}
		})
	}
}

// A transaction that breaks takes its entries with it. The one that does the same again appends
// them, once.
func TestAuditOfABrokenTransaction(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			where := database(t)
			s := openAuditing(t, where, forebay.JobEventTypes)
			t.Cleanup(func() { s.DB.Close() })
			tenant, queueID := tenantNamed(t, s, "acme"), queueOf(t, s, "q")
			put(t, s, tenant, queueID, 1, nil)
			d := take(t, s, queue.SubqueueOf(queueID, queue.SubqueueMain), 1, time.Minute)
			broken := fmt.Errorf("the transaction breaks")
			ends := dbtest.InOneTransaction(t, s.DB, func() error {
				return s.Jobs.DeadLetter(t.Context(), &d[0], AttemptRecord{Outcome: forebay.OutcomeFailed}, queue.SubqueueDeadLetter, "it failed")
			}, func() error {
				_, err := db.Transact(context.Background(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(*db.Tx) (int, error) { return 0, broken })
				return err
			})
			if ends[0] != nil || ends[1] == nil {
				t.Error(ends)
			}
			entries, _, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{}, 0, 10)
			if err != nil || len(entries) != 4 { // accepted, started, failed, dead_lettered: the second try has made the last two
				t.Errorf("%+v (%v)", entries, err)
			}
			checkChain(t, s)
		})
	}
}

// openAuditing opens a database whose audit log is to have events of these types.
func openAuditing(t *testing.T, where db.Options, listed []forebay.EventType) *stores {
	where.Serve = true
	s, err := openAudited(t.Context(), where, listed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkChain verifies the whole audit log, and returns how many entries it has.
func checkChain(t *testing.T, s *stores) int64 {
	t.Helper()
	v, err := s.Audit.Verify(t.Context(), forebay.AuditHead{}, 10_000)
	if err != nil || !v.Intact || !v.Done {
		t.Errorf("the chain: %+v %+v (%v)", v, v.Broken, err)
	}
	return v.Checked
}
