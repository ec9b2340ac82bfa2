package batches

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
)

// A batch ends once: as its lines end, its counts follow, and the transaction that ends it tells.
func TestLifeOfABatch(t *testing.T) {
	onClocks(t, func(r *running) {
		var told []State
		r.st.Batches.WhenEnded(func(_ *db.Tx, b Batch) error {
			told = append(told, b.State)
			if b.OutputFile == "" || b.EndedAt == nil {
				t.Errorf("told of %+v", b)
			}
			return nil
		})
		const lines = 700
		file := r.upload(lines)
		id := r.create(file, "24h").ID
		r.work()
		if b := r.read(id); b.State != InProgress || b.Total != lines || b.Fed != waitingOf(lowest) || b.Model != "m" {
			r.Fatalf("got %+v", b)
		}
		r.must(r.files.Delete(r.Context(), "acme", file)) // it goes on all the same
		r.must(r.files.Purge(r.Context()))
		ended := int64(0)
		for ended < lines {
			list := r.claim(200)
			r.answer(list)
			ended += int64(len(list))
			b := r.read(id)
			if b.Ended != ended || b.Completed != ended || b.Failed != 0 {
				r.Fatalf("%d have ended: %+v", ended, b)
			}
			r.work()
			if b := r.read(id); !b.State.Over() && b.Fed-b.Ended <= waitingOf(lowest)/2 && b.Fed < b.Total {
				r.Fatalf("no lines follow: %+v", b)
			}
		}
		b := r.read(id)
		if b.State != Completed || b.ErrorFile != "" || !slices.Equal(told, []State{Completed}) {
			r.Errorf("ended: %+v, told %v", b, told)
		}
		if want := fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":0},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}`, 2*lines, 3*lines, 5*lines); string(b.Usage) != want {
			r.Errorf("used %s", b.Usage)
		}
		output := r.output(b.OutputFile)
		for i, line := range output {
			if !strings.Contains(line, fmt.Sprintf(`"custom_id":"c%d","response":{"status_code":200,`, i)) || !strings.Contains(line, fmt.Sprintf(`"was":{"model":"m","n":%d}`, i)) {
				r.Fatalf("line %d: %s", i, line)
			}
		}
		if len(output) != lines {
			r.Errorf("%d lines of output", len(output))
		}
		if left, err := r.Store.endedLines(r.Context(), &b, 0); err != nil || len(left) != 0 {
			r.Errorf("%d lines are left (%v)", len(left), err)
		}
		r.must(r.files.Purge(r.Context()))
		if _, err := r.st.Files.Used(r.Context(), file); !errors.Is(err, forebay.ErrNotFound) {
			r.Errorf("the input is still there: %v", err)
		}
	})
}

// A result that storage has lost fails its line, and not the batch.
func TestAResultIsGone(t *testing.T) {
	onClocks(t, func(r *running) {
		id := r.create(r.upload(2), "24h").ID
		r.work()
		list := r.claim(2)
		large := json.RawMessage(`{"status_code":200,"body":"` + strings.Repeat("x", forebay.InlineBytes) + `"}`)
		_, err := r.worker.Finish(r.Context(), list[0], forebay.TaskResult{Output: large}, nil)
		r.must(err)
		removed, err := r.Blobs.Sweep(r.Context(), time.Now().AddDate(1000, 0, 0), func(keys []string) (map[string]bool, error) {
			kept := map[string]bool{}
			for _, key := range keys {
				kept[key] = !strings.Contains(key, "/result-")
			}
			return kept, nil
		})
		if err != nil || removed != 1 {
			r.Fatal(removed, err)
		}
		r.answer(list[1:])
		r.work()
		b := r.read(id)
		if answers, failed := r.output(b.OutputFile), r.output(b.ErrorFile); len(answers) != 1 || len(failed) != 1 || !strings.Contains(failed[0], "the result is gone") {
			r.Errorf("%s with answers %q and errors %q", b.State, answers, failed)
		}
		if b.Total != 2 || b.Completed != 1 || b.Failed != 1 {
			r.Errorf("counted %d of %d, %d have failed", b.Completed, b.Total, b.Failed)
		}
	})
}

// When the window closes, what was answered stays, and every other line is told of.
func TestExpiry(t *testing.T) {
	onClocks(t, func(r *running) {
		const lines = 400
		id := r.create(r.upload(lines), "1h").ID
		r.work()
		r.answer(r.claim(7))
		held := r.claim(2) // whose worker dies
		r.pass(time.Hour + time.Minute)
		for range 20 { // jobs expire some at a time
			r.work()
			r.pass(2 * time.Minute)
			if r.read(id).State.Over() {
				break
			}
		}
		r.work()
		b := r.read(id)
		if b.State != Expired || b.Completed != 7 || b.Failed != 0 || b.Total != lines || b.FinalizingAt == nil || b.EndedAt == nil {
			r.Fatalf("ended: %+v", b)
		}
		answers, failures := r.output(b.OutputFile), r.output(b.ErrorFile)
		if len(answers) != 7 || len(failures) != lines-7 {
			r.Errorf("%d answers, %d failures", len(answers), len(failures))
		}
		seen := map[string]bool{}
		for _, line := range failures {
			if !strings.Contains(line, `"response":null,"error":{"code":"batch_expired"`) || seen[line] {
				r.Fatalf("a line: %s", line)
			}
			seen[line] = true
		}
		if _, err := r.worker.Finish(r.Context(), held[0], forebay.TaskResult{}, nil); !errors.Is(err, forebay.ErrLockLost) {
			r.Errorf("a late answer: %v", err)
		}
	})
}

// A batch whose last lines were ended by its window has expired, also if all of them were jobs.
func TestExpiryOfTheLastLines(t *testing.T) {
	onClocks(t, func(r *running) {
		id := r.create(r.upload(3), "1h").ID
		r.work()
		r.answer(r.claim(1))
		r.pass(time.Hour + time.Minute)
		if b := r.read(id); b.State != InProgress || b.Ended != b.Total {
			r.Fatalf("the window has closed: %+v", b)
		}
		r.work()
		b := r.read(id)
		if b.State != Expired || b.Completed != 1 || b.Failed != 0 {
			r.Fatalf("ended: %+v", b)
		}
		answers, failures := r.output(b.OutputFile), r.output(b.ErrorFile)
		if len(answers) != 1 || len(failures) != 2 {
			r.Errorf("%d answers, %d failures", len(answers), len(failures))
		}
		for _, line := range failures {
			if !strings.Contains(line, `"error":{"code":"batch_expired"`) {
				r.Errorf("a line: %s", line)
			}
		}
	})
}

// A batch that is over goes once it was kept as long as it should be. Its files stay.
func TestBatchesAreKeptForAWhile(t *testing.T) {
	onClocks(t, func(r *running) {
		r.Keep = time.Hour
		id := r.create(r.upload(3), "24h").ID
		r.work()
		r.answer(r.claim(3))
		r.work()
		b := r.read(id)
		if b.State != Completed {
			r.Fatalf("ended: %+v", b)
		}
		r.pass(50 * time.Minute)
		r.work()
		r.read(id)
		r.pass(20 * time.Minute)
		r.work()
		if _, err := r.Batch(r.Context(), "acme", id); !errors.Is(err, forebay.ErrNotFound) {
			r.Errorf("it is still there: %v", err)
		}
		if n := len(r.output(b.OutputFile)); n != 3 {
			r.Errorf("%d lines of output", n)
		}
	})
}

// A line that is delivered too often is over. Nobody can redrive it, so its outcome stays.
func TestLinesThatAreDeliveredTooOften(t *testing.T) {
	onClocks(t, func(r *running) {
		id, job := r.create(r.upload(1), "24h").ID, ""
		r.work()
		for range 3 { // whose workers die
			list := r.claim(1)
			if len(list) != 1 || list[0].CorrelationID != id {
				r.Fatalf("claimed %+v", list)
			}
			job = list[0].ID
			r.pass(2 * time.Minute)
		}
		other := r.create(r.upload(1), "24h").ID
		r.work()
		list := r.claim(1)
		if len(list) != 1 || list[0].CorrelationID != other {
			r.Fatalf("claimed %+v", list)
		}
		if _, err := r.Jobs.Redrive(r.Context(), "acme", job, "somebody"); forebay.CodeOf(err) != forebay.CodeConflict {
			r.Errorf("redriven: %v", err)
		}
		r.work()
		b := r.read(id)
		if b.State != Completed || b.Failed != 1 || b.OutputFile != "" {
			r.Errorf("ended: %+v", b)
		}
		if failures := r.output(b.ErrorFile); len(failures) != 1 || !strings.Contains(failures[0], "MaxDeliveryCountExceeded") {
			r.Errorf("failures: %q", failures)
		}
		r.answer(list)
	})
}

// Lines become urgent as their window closes, and those that wait do too. They go first then.
func TestUrgency(t *testing.T) {
	now := time.Unix(100_000, 0)
	at := func(spent, left time.Duration, total, ended int64) int {
		begun := now.Add(-spent)
		return urgency(&Batch{InProgressAt: &begun, ExpiresAt: now.Add(left), Total: total, Ended: ended}, now)
	}
	for _, c := range []struct {
		spent, left  time.Duration
		total, ended int64
		want         int
	}{
		{time.Minute, 24 * time.Hour, 50_000, 0, lowest},
		{time.Hour, 23 * time.Hour, 1000, 500, lowest},
		{12 * time.Hour, 12 * time.Hour, 1000, 700, lowest},
		{12 * time.Hour, 12 * time.Hour, 1000, 600, raised},
		{12 * time.Hour, 12 * time.Hour, 1000, 550, level},
		{12 * time.Hour, 12 * time.Hour, 1000, 400, highest},
		{9 * time.Hour, 15 * time.Hour, 1000, 0, level},
		{12 * time.Hour, 12 * time.Hour, 1000, 0, highest},
		{24 * time.Hour, 0, 1000, 999, highest},
	} {
		if got := at(c.spent, c.left, c.total, c.ended); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	onClocks(t, func(r *running) {
		patient := r.create(r.upload(600), "168h").ID
		r.work()
		urgent := r.create(r.upload(600), "1h").ID
		r.work()
		first := r.claim(1)
		if first[0].CorrelationID != patient {
			r.Errorf("first came %s", first[0].CorrelationID)
		}
		b := r.read(urgent)
		r.pass(again)
		b, ok, err := r.Store.Lease(r.Context(), b.No)
		if err != nil || !ok {
			r.Fatal(ok, err)
		}
		r.must(r.Store.Raise(r.Context(), &b, raised))
		r.must(r.Store.Release(r.Context(), &b, 0))
		late := 0
		list := r.claim(24)
		for _, d := range list {
			if d.CorrelationID != urgent {
				late++
			}
			job, err := r.Jobs.Get(r.Context(), "acme", d.ID)
			r.must(err)
			if (job.Priority == raised) != (d.CorrelationID == urgent) {
				r.Errorf("a job of %s has the priority %d", d.CorrelationID, job.Priority)
			}
		}
		// One job in eight comes from behind, so that nothing starves.
		if len(list) != 24 || late > 4 {
			r.Errorf("%d of %d came from the batch that has time", late, len(list))
		}
		r.answer(list)
		r.pass(50 * time.Minute)
		r.work()
		hurried, other := r.read(urgent), r.read(patient)
		if hurried.Priority != highest || hurried.Fed != 600 || other.Priority != lowest || other.Fed-other.Ended > waitingOf(lowest) {
			r.Errorf("the urgent one: priority %d, %d of %d; the other: priority %d, %d of %d", hurried.Priority, hurried.Ended, hurried.Fed, other.Priority, other.Ended, other.Fed)
		}
	})
}

// Whoever has lost the lease, or believes another state, changes nothing.
func TestLeases(t *testing.T) {
	onClocks(t, func(r *running) {
		id := r.create(r.upload(3), "24h").ID
		no := r.due(1)[0]
		old, ok, err := r.Store.Lease(r.Context(), no)
		if err != nil || !ok {
			r.Fatal(ok, err)
		}
		if _, ok, err := r.Store.Lease(r.Context(), no); err != nil || ok {
			r.Fatal("two have a lease", err)
		}
		r.pass(leaseFor / 2)
		r.must(r.Store.Renew(r.Context(), &old))
		r.pass(leaseFor * 3 / 4)
		r.due(0)
		r.pass(leaseFor) // its process has died
		latest, ok, err := r.Store.Lease(r.Context(), r.due(1)[0])
		if err != nil || !ok || latest.Lease != old.Lease+1 {
			r.Fatal(latest, ok, err)
		}
		for what, err := range map[string]error{
			"renew": r.Store.Renew(r.Context(), &old), "begin": r.Store.Begin(r.Context(), &old, "m", 3),
			"fail": r.Store.Fail(r.Context(), &old, []byte("[]")), "end": r.Store.End(r.Context(), &old, Output{}),
		} {
			if !errors.Is(err, errLeaseLost) {
				r.Errorf("%s: %v", what, err)
			}
		}
		r.must(r.Store.Begin(r.Context(), &latest, "m", 3))
		if err := r.Store.Begin(r.Context(), &latest, "m", 3); !errors.Is(err, errLeaseLost) {
			r.Errorf("it has begun already: %v", err)
		}
		latest.State, latest.Total, latest.Model = InProgress, 3, "m"
		twice := latest
		r.must(r.feed(r.Context(), &latest))
		if err := r.feed(r.Context(), &twice); !errors.Is(err, errLeaseLost) {
			r.Errorf("fed twice: %v", err)
		}
		if b := r.read(id); b.Fed != 3 || b.Total != 3 {
			r.Errorf("got %+v", b)
		}
		r.must(r.Store.Release(r.Context(), &latest, time.Hour))
		r.due(0)
		list := r.claim(3)
		if len(list) != 3 {
			r.Errorf("%d jobs", len(list))
		}
		r.answer(list[:2])
		r.due(0) // no line can follow
		r.answer(list[2:])
		r.due(1) // what it waited for is there
	})
}

// due returns the batches that are due, of which there are so many.
func (r *running) due(want int) (nos []int64) {
	r.Helper()
	due, _, err := r.Store.Due(r.Context())
	if err != nil || len(due) != want {
		r.Fatalf("%d batches are due, want %d (%v)", len(due), want, err)
	}
	for _, d := range due {
		nos = append(nos, d.No)
	}
	return nos
}

// Many batches of a tenant do not put off those of another, nor take all places of a process.
func TestTenantsTakeTurns(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, st *stores) {
		r := newRunning(t, st)
		file := r.upload(1)
		for range 100 {
			r.create(file, "24h")
		}
		late := r.createOf("other", r.uploadOf("other", 1), "24h")
		due, _, err := r.Store.Due(t.Context())
		r.must(err)
		p, begun := places{taken: map[DueBatch]bool{}}, false
		var acme []DueBatch
		for _, d := range due {
			switch taken := p.take(d); {
			case !taken:
			case d.Tenant == late.Tenant:
				begun = true
			default:
				acme = append(acme, d)
			}
		}
		if !begun || len(acme) != ofATenant {
			t.Fatalf("of %d batches %d were begun, the other tenant's: %t", len(due), len(acme), begun)
		}
		if p.take(acme[0]) {
			t.Error("a batch has two places")
		}
		if !p.leave(acme[0]) || p.leave(acme[1]) || !p.take(acme[0]) {
			t.Error("a place that was left does not go to the next")
		}
	})
}

// Jobs of others may have the correlation id of a batch: they do not count.
func TestForeignJobsDoNotCount(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, st *stores) {
		r := newRunning(t, st)
		id := r.create(r.upload(2), "24h").ID
		r.work()
		_, _, err := r.Jobs.Submit(t.Context(), "acme", forebay.SubmitRequest{Task: "line", Input: []byte("1"), CorrelationID: &id})
		r.must(err)
		for ended := 0; ended < 3; {
			list := r.claim(1)
			r.answer(list)
			ended += len(list)
		}
		if b := r.read(id); b.Ended != 2 || b.Completed != 2 {
			t.Errorf("got %+v", b)
		}
	})
}

// On PostgreSQL, the round trips of a transaction do not grow with the lines that it ends.
func TestRoundTripsOfLines(t *testing.T) {
	trips := fixture.Trips(t)
	r := newRunning(t, trips.Stores)
	id := r.create(r.upload(400), "24h").ID
	r.work()
	trips.Together(t, "lines that end", func() (calls []func() error) {
		list := r.claim(16)
		for len(list) < 16 {
			list = append(list, r.claim(16-len(list))...)
		}
		for _, d := range list {
			calls = append(calls, func() error {
				_, err := r.worker.Finish(t.Context(), d, forebay.TaskResult{Output: []byte(`{"status_code":200,"body":{}}`)}, nil)
				return err
			})
		}
		return calls
	})
	trips.Together(t, "lines that are raised and cancelled", func() (calls []func() error) {
		no := r.read(id).No
		_, err := db.Transact(t.Context(), trips.Stores.DB.Writer, db.Op{}, func(tx *db.Tx) (struct{}, error) {
			return struct{}{}, tx.Prep("UPDATE batches SET due_at = 1, leased_until = 0 WHERE no = ?").Int(no).Exec()
		})
		r.must(err)
		b, ok, err := r.Store.Lease(t.Context(), no)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		seqs, _, err := r.Store.waiting(t.Context(), &b, 0, false)
		r.must(err)
		priority := b.Priority + 1
		b.Priority = priority
		return []func() error{func() error {
			return r.Store.work(t.Context(), &b, touching(&b, seqs), func(x *tx, _ Batch) error { return x.raise(seqs, priority+1) })
		}}
	})
	trips.Plans(t)
}
