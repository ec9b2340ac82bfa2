package report

import (
	"context"
	"errors"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// attemptOf is one of a tenant, in the hour that runs.
func attemptOf(t *testing.T, s *Store) Attempt {
	t.Helper()
	tenant, err := s.EnsureTenant(t.Context(), "acme")
	mustDo(t, err)
	return Attempt{Tenant: tenant, FinishedAt: s.Now().UnixMilli(), Task: "echo", Deployment: "east", Number: 1, Outcome: forebay.OutcomeSucceeded, Use: Use{Input: 3, Cost: 7}}
}

// count counts an attempt in a transaction of its own, which first does something else.
func count(ctx context.Context, s *Store, a Attempt, first func(*Tx) error) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		t.Count(a, 1)
		return struct{}{}, first(t)
	})
	return err
}

func nothing(*Tx) error { return nil }

func analyze(t *Tx) error { return t.Prep("ANALYZE attempt_hours").Exec() }

// shortParts makes each part end after two changes.
func shortParts(t *Tx) error {
	t.w.hours.size = 2
	return nil
}

// summed fails unless all sums of the tenant, and of all, come to so many attempts, and returns
// how many rows they have.
func summed(t *testing.T, s *Store, want int64) (rows int64) {
	t.Helper()
	for _, from := range []string{"attempt_hours WHERE tenant = 0", "attempt_hours WHERE tenant > 0"} {
		mustDo(t, s.Read(t.Context(), func(c driver.Conn) error {
			_, err := c.Prep("SELECT CAST(coalesce(sum(attempts), 0) AS BIGINT), CAST(coalesce(sum(cost), 0) AS BIGINT), count(*) FROM " + from).One(func(r driver.Row) {
				if r.Int(0) != want || r.Int(1) != 7*want {
					t.Errorf("%d attempts of %d that cost %d in %s", r.Int(0), want, r.Int(1), from)
				}
				rows = max(rows, r.Int(2))
			})
			return err
		}))
	}
	for _, all := range []bool{false, true} {
		report, err := s.RetryReport(t.Context(), "acme", all, s.Now().Add(-span), s.Now())
		mustDo(t, err)
		usage, err := s.Usage(t.Context(), "acme", forebay.UsageQuery{AllTenants: all, Step: forebay.UsageDaily}, modelOf)
		mustDo(t, err)
		if report.Succeeded != want || len(report.ByAttempt) != 1 || usage.Total.Attempts != want {
			t.Errorf("all: %t; %d attempts are %d in the retry report and %d in that of usage", all, want, report.Succeeded, usage.Total.Attempts)
		}
	}
	return rows
}

// While somebody keeps an old snapshot on the server, what a transaction reads to add to its sums
// does not grow with the transactions before it.
func TestOldSnapshotDoesNotSlowSums(t *testing.T) {
	t.Parallel()
	const n = 3000
	fixture.FewEntriesRead(t, n, 100, []string{"attempt_hours_pkey"}, func(s *Store) {
		a := attemptOf(t, s)
		for i := range n {
			first := nothing
			if i == n/4 {
				first = analyze // the server plans anew
			}
			mustDo(t, count(t.Context(), s, a, first))
		}
	})
}

// Parts of a sum add up, whichever process has begun them, and become one again.
func TestPartsAddUp(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	one, other := fixture.Serving(t, db.Options{URL: url}), fixture.Serving(t, db.Options{URL: url})
	a := attemptOf(t, one)
	const each = 100
	counted := make(chan error)
	for _, s := range []*Store{one, other} {
		go func() {
			var err error
			for range each {
				err = errors.Join(err, count(t.Context(), s, a, shortParts))
			}
			counted <- err
		}()
	}
	mustDo(t, errors.Join(<-counted, <-counted))
	if rows := summed(t, one, 2*each); rows > 3 { // part 0, and one of each process
		t.Errorf("a sum has %d rows", rows)
	}
}

// Those that a failed transaction has begun, or added to part 0, are as they were.
func TestFailedTransactionLeavesPartsAlone(t *testing.T) {
	t.Parallel()
	s := fixture.Serving(t, db.Options{URL: dbtest.Postgres(t)})
	a := attemptOf(t, s)
	const n = 60
	for i := range n {
		mustDo(t, count(t.Context(), s, a, shortParts))
		err := count(t.Context(), s, a, func(t *Tx) error {
			return t.Prep("INSERT INTO tenants (name, created_at) VALUES (?, ?)").Text("acme").Int(0).Exec() // which fails with the commit
		})
		if err == nil {
			t.Fatalf("transaction %d did not fail", i)
		}
	}
	if rows := summed(t, s, n); rows > 2 {
		t.Errorf("a sum has %d rows", rows)
	}
}

// A transaction is taken for failed whose commit's answer was lost. What it has added to part 0 is
// not added again.
func TestPartsBearALostAnswer(t *testing.T) {
	t.Parallel()
	s := fixture.Serving(t, db.Options{URL: dbtest.Postgres(t)})
	a := attemptOf(t, s)
	const n = 60
	for i := range int64(n) {
		mustDo(t, count(t.Context(), s, a, func(t *Tx) error {
			if i%3 > 0 {
				t.After = append(t.After, func() { t.w.Invalidate(t.Tx, 0) })
			}
			return shortParts(t)
		}))
	}
	if rows := summed(t, s, n); rows < 3 {
		t.Errorf("a sum has %d rows: no part was left behind", rows)
	}
}

// What a writer remembers is bounded, and parts of hours that are over end.
func TestPartsAreBounded(t *testing.T) {
	p := parts{on: true, size: 1} // each change begins a part
	for n := range int64(3 * maxHeld) {
		p.of(hourKey{tenant: n, hour: 1}, 1000)
		if len(p.fold(1)) > mostFolds {
			t.Fatal("one transaction folds too many")
		}
		p.committed()
	}
	held, full := len(p.held), len(p.full)
	if held > maxHeld || full > mostFolds {
		t.Errorf("%d parts are held, and %d are to be folded", held, full)
	}
	for range maxHeld {
		p.of(hourKey{tenant: 7 * maxHeld, hour: 1}, 1000)
		p.rolledBack()
	}
	if len(p.held) != held || len(p.full) != full {
		t.Errorf("after failures %d parts are held of %d, and %d of %d are to be folded", len(p.held), held, len(p.full), full)
	}
	p.fold(2)
	p.rolledBack() // the next transaction finds that the hour is over, too
	p.fold(2)
	for range maxHeld/mostFolds + 1 {
		p.committed()
		p.fold(2)
	}
	if len(p.held) > 0 || len(p.full) > 0 {
		t.Errorf("%d parts of an hour that is over are held, and %d are to be folded", len(p.held), len(p.full))
	}
}
