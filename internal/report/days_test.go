package report

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Usage is what was counted, whenever that was and whichever days have sums by then. Those days'
// sums are always those of their hours.
func TestDaysAreMadeWhenTheyAreOver(t *testing.T) {
	fixture.OnEveryEngine(t, func(t *rapid.T, e dbtest.Engine[*Store]) {
		s := e.Open(t)
		defer func() { s.Close() }()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		var tenants []int64
		for i := range rapid.SampledFrom([]int{1, tenantsMadeAtOnce + 1}).Draw(t, "tenants") {
			no, err := s.EnsureTenant(t.Context(), fmt.Sprint("tenant", i))
			must(err)
			tenants = append(tenants, no)
		}
		type key struct{ tenant, day int64 }
		counted := map[key]int64{}
		var latest Attempt
		add := func(a Attempt, n int64) {
			_, err := db.TransactIn(t.Context(), Key, s.Writer, db.Op{Stage: db.StageChange}, func(x *Tx) (struct{}, error) {
				x.Count(a, n)
				return struct{}{}, nil
			})
			must(err)
			counted[key{a.Tenant, a.FinishedAt / dayMillis}] += n
			counted[key{allTenants, a.FinishedAt / dayMillis}] += n
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"count", "count", "count", "move", "pass", "make", "some", "some", "forget", "reopen"}).Draw(t, "step") {
			case "count":
				ago := time.Duration(rapid.SampledFrom([]int{0, 1, 3, 30, 50, 70}).Draw(t, "hours ago")) * time.Hour
				latest = Attempt{Tenant: tenants[max(0, len(tenants)-rapid.IntRange(1, 3).Draw(t, "tenant"))], FinishedAt: e.Now() - ago.Milliseconds(), Number: 1,
					Task: "echo", Deployment: rapid.SampledFrom([]string{"", "east"}).Draw(t, "deployment"), Outcome: forebay.OutcomeSucceeded}
				add(latest, 1)
			case "move":
				if latest.Tenant != 0 {
					add(latest, -1)
					latest.Deployment = "west"
					add(latest, 1)
				}
			case "pass":
				e.Pass(s, time.Duration(rapid.SampledFrom([]int{1, 40, 23 * 60, 49 * 60}).Draw(t, "minutes"))*time.Minute)
			case "make":
				must(s.MakeDays(t.Context()))
			case "some":
				_, err := db.TransactIn(t.Context(), Key, s.Writer, db.Op{Stage: db.StageChange}, (*Tx).makeDays)
				must(err)
			case "forget": // nothing is so old, but what has no sum of its day must stay
				before := driver.FromMillis(e.Now())
				must(s.Forget(t.Context(), before))
				for k := range counted {
					if made := s.madeUntil(t); k.day <= made && k.day < before.UnixMilli()/dayMillis {
						delete(counted, k)
					}
				}
			case "reopen":
				must(s.Close())
				s = e.Reopen(t)
			}
			must(daysDiffer(s))
			for _, all := range []bool{false, true} {
				tenant := int64(allTenants)
				if !all {
					tenant = tenants[len(tenants)-1] // whose sums are made last
				}
				for _, step := range []forebay.UsageStep{forebay.UsageWhole, forebay.UsageDaily} {
					query := forebay.UsageQuery{AllTenants: all, Step: step, Since: driver.FromMillis(e.Now() - 60*dayMillis).Truncate(24 * time.Hour), Until: driver.FromMillis(e.Now() + 1)}
					report, err := s.Usage(t.Context(), fmt.Sprint("tenant", len(tenants)-1), query, modelOf)
					must(err)
					var want int64
					for k, n := range counted {
						if k.tenant == tenant {
							want += n
						}
					}
					if report.Total.Attempts != want {
						t.Fatalf("all: %t, step %s: %d attempts, want %d", all, step, report.Total.Attempts, want)
					}
					for _, row := range report.Rows {
						if day := row.Time.UnixMilli() / dayMillis; step == forebay.UsageDaily && row.Attempts != counted[key{tenant, day}] {
							t.Fatalf("%d attempts on day %d, want %d", row.Attempts, day, counted[key{tenant, day}])
						}
					}
				}
			}
		}
	})
}

func (s *Store) madeUntil(t rapid.TB) (day int64) {
	err := s.Read(context.Background(), func(c driver.Conn) error {
		made, err := readMade(c.Prep)
		day = made.wholeDay()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return day
}

// daysDiffer compares the sums of days that are made with those of their hours.
func daysDiffer(s *Store) error {
	return s.Read(context.Background(), func(c driver.Conn) error {
		made, err := readMade(c.Prep)
		if err != nil {
			return err
		}
		sums := [2]map[string]int64{{}, {}}
		for i, sql := range []string{
			"SELECT tenant, hour / 24, task, deployment, CAST(sum(attempts) AS BIGINT) FROM attempt_hours GROUP BY 1, 2, 3, 4",
			"SELECT tenant, day, task, deployment, attempts FROM usage_days WHERE detail = 1",
		} {
			err = errors.Join(err, c.Prep(sql).Each(func(r driver.Row) error {
				if placeOf(r.Int(1), r.Int(0)) <= made && r.Int(4) != 0 {
					sums[i][fmt.Sprint(r.Int(0), r.Int(1), r.Text(2), r.Text(3))] = r.Int(4)
				}
				return nil
			}))
		}
		if fmt.Sprint(sums[0]) != fmt.Sprint(sums[1]) {
			return fmt.Errorf("up to %d the sums of days are %v, those of hours %v", made, sums[1], sums[0])
		}
		return err
	})
}

// A process knows of the days that another one has made.
func TestDaysThatAnotherProcessHasMade(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	one, other := fixture.Serving(t, db.Options{URL: url}), fixture.Serving(t, db.Options{URL: url})
	a := attemptOf(t, one)
	mustDo(t, count(t.Context(), one, a, nothing)) // and reads that none is made
	for _, ago := range []int64{3, 4} {
		a.FinishedAt = one.Now().UnixMilli() - ago*dayMillis
		mustDo(t, count(t.Context(), one, a, nothing))
	}
	mustDo(t, other.MakeDays(t.Context()))
	mustDo(t, count(t.Context(), one, a, nothing))
	mustDo(t, daysDiffer(one))
}

// What a transaction counts of a day that it makes itself is in the day's sums.
func TestDayMadeByTheTransactionThatCounts(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *Store) {
		a := attemptOf(t, s)
		a.FinishedAt -= 3 * dayMillis
		mustDo(t, count(t.Context(), s, a, nothing))
		mustDo(t, count(t.Context(), s, a, func(t *Tx) error {
			t.w.made.hour = 0 // what is made is read once more
			_, err := t.makeDays()
			return err
		}))
		if made := s.madeUntil(t); made < a.FinishedAt/dayMillis {
			t.Fatalf("only days up to %d are made", made)
		}
		mustDo(t, daysDiffer(s))
	})
}

// Tenants whose sums one transaction does not make get them with the next, as do those that are
// new by then.
func TestDaysOfManyTenants(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *Store) {
		a := attemptOf(t, s)
		a.FinishedAt -= 3 * dayMillis
		for i := range 2*tenantsMadeAtOnce + 1 {
			var err error
			a.Tenant, err = s.EnsureTenant(t.Context(), fmt.Sprint("tenant", i))
			mustDo(t, err)
			mustDo(t, count(t.Context(), s, a, nothing))
		}
		mustDo(t, s.MakeDays(t.Context()))
		mustDo(t, daysDiffer(s))
		mustDo(t, count(t.Context(), s, a, nothing))
		mustDo(t, daysDiffer(s))
	})
}
