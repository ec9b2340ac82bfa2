package postgres

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/pgtest"
)

// begun is a connection with a transaction and a table of numbers, from 0 to below n.
func begun(t *testing.T, n int) (*Conn, driver.Conn) {
	t.Helper()
	c, err := ConnectURL(t.Context(), pgtest.Database(t))
	mustDo(t, err)
	t.Cleanup(func() { c.Close() })
	mustDo(t, c.ExecSimple(fmt.Sprintf("CREATE SCHEMA forebay; CREATE TABLE numbers (no bigint PRIMARY KEY, name text); INSERT INTO numbers SELECT x, x::text FROM generate_series(0, %d) x", n-1)))
	_, err = c.Begin(driver.BeginOptions{})
	mustDo(t, err)
	t.Cleanup(func() { mustDo(t, c.Rollback()) })
	return c, driver.Conn{Driver: c}
}

// Calls that read one after the other take as many round trips as the one that reads most,
// whatever each reads.
func TestInterleave(t *testing.T) {
	t.Parallel()
	const n = 100
	c, conn := begun(t, 2*n)
	got := make([][]string, n)
	chains := func(i int) error {
		if i%10 == 9 {
			return nil // reads nothing
		}
		for _, no := range []int{i, i + n} {
			if no != i && i%2 == 0 {
				continue // reads once
			}
			err := conn.Prep("SELECT name FROM numbers WHERE no = ? OR no = ? ORDER BY no").Int(int64(no)).Int(-1).Each(func(r driver.Row) error {
				// A row is there while others' statements of the same text run.
				rows, err := conn.Prep("UPDATE numbers SET name = name WHERE no = ?").Int(int64(no)).Count()
				if err != nil || rows != 1 {
					return fmt.Errorf("%d rows: %w", rows, err)
				}
				got[i] = append(got[i], r.Text(0))
				return conn.Prep("UPDATE numbers SET name = ? WHERE no = ?").Text("after").Int(int64(no)).Exec()
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	mustDo(t, c.Interleave(n, chains)) // prepares the statements
	clear(got)
	before := c.RoundTrips()
	mustDo(t, c.Interleave(n, chains))
	if trips := c.RoundTrips() - before; trips != 4 {
		t.Errorf("%d round trips for chains of at most 4", trips)
	}
	for i, names := range got {
		want := []string{"after", "after"}
		switch {
		case i%10 == 9:
			want = nil
		case i%2 == 0:
			want = want[:1]
		}
		if !slices.Equal(names, want) {
			t.Errorf("call %d read %q", i, names)
		}
	}
}

// Calls that are nested, or ask several questions, go in the same round trips.
func TestInterleaveNested(t *testing.T) {
	t.Parallel()
	c, conn := begun(t, 100)
	sum := 0
	read := func(no int) driver.PipelineQuery {
		return driver.PipelineQuery{SQL: "SELECT no FROM numbers WHERE no = ?", Bind: func(st driver.Statement) driver.Statement { return st.Int(int64(no)) },
			OnRow: func(r driver.Row) { sum += int(r.Int(0)) }}
	}
	run := func() {
		mustDo(t, c.Interleave(10, func(i int) error {
			if i%2 == 0 {
				return c.RunPipeline([]driver.PipelineQuery{read(10 * i), read(10*i + 1), read(10*i + 2)})
			}
			return c.Interleave(3, func(k int) error { return read(10*i + k).Run(conn) })
		}))
	}
	run()
	sum = 0
	before := c.RoundTrips()
	run()
	want := 0
	for i := range 10 {
		want += 30*i + 3
	}
	if trips := c.RoundTrips() - before; trips != 1 || sum != want {
		t.Errorf("%d round trips, the sum is %d instead of %d", trips, sum, want)
	}
}

// The first error ends all calls, whether they wait, have begun or not; what they still wanted
// is not done.
func TestInterleaveFails(t *testing.T) {
	t.Parallel()
	c, conn := begun(t, 10)
	broken := errors.New("broken")
	var ended, changed int
	err := c.Interleave(10, func(i int) error {
		defer func() { ended++ }()
		if i == 5 {
			return broken
		}
		_, err := conn.Prep("UPDATE numbers SET name = 'changed' WHERE no = ?").Int(int64(i)).Count()
		return err
	})
	if !errors.Is(err, broken) || ended != 6 {
		t.Errorf("%v after %d calls", err, ended)
	}
	mustDo(t, conn.Prep("SELECT count(*) FROM numbers WHERE name = 'changed'").Each(func(r driver.Row) error { changed = int(r.Int(0)); return nil }))
	if changed != 0 || len(c.wanted) != 0 {
		t.Errorf("%d were changed, %d are wanted", changed, len(c.wanted))
	}
	// One that panics unwinds the others.
	ended = 0
	func() {
		defer func() {
			if recover() != broken {
				t.Error("the panic is lost")
			}
		}()
		_ = c.Interleave(3, func(i int) error {
			defer func() { ended++ }()
			if i == 2 {
				panic(broken)
			}
			return conn.Prep("SELECT 1").Each(nil)
		})
	}()
	if ended != 3 || c.running != nil {
		t.Errorf("%d calls have ended", ended)
	}
	// So it does once their answers are there.
	ended = 0
	func() {
		defer func() { _ = recover() }()
		_ = c.Interleave(3, func(i int) error {
			defer func() { ended++ }()
			err := conn.Prep("SELECT 1").Each(nil)
			if i == 0 {
				panic(broken)
			}
			return err
		})
	}()
	if ended != 3 || c.running != nil {
		t.Errorf("%d calls have ended", ended)
	}
	// An error of the server reaches them all.
	failures := 0
	err = c.Interleave(3, func(i int) error {
		err := conn.Prep("SELECT 1 / ?").Int(int64(i)).Each(nil)
		if err != nil {
			failures++
		}
		return err
	})
	if err == nil || failures != 3 {
		t.Errorf("%v in %d calls", err, failures)
	}
}

// While one call is alone no other runs, though it waits for the database.
func TestInterleaveAlone(t *testing.T) {
	t.Parallel()
	c, conn := begun(t, 10)
	known := -1
	mustDo(t, c.Interleave(10, func(i int) error {
		if err := conn.Prep("SELECT no FROM numbers WHERE no = ?").Int(int64(i)).Each(nil); err != nil {
			return err
		}
		return c.Alone(func() error {
			if known >= 0 {
				return nil
			}
			known = 0
			mustDo(t, conn.Prep("SELECT count(*) FROM numbers").Each(func(r driver.Row) error { known += int(r.Int(0)); return nil }))
			if known != 10 {
				t.Errorf("another call ran meanwhile: %d", known)
			}
			return nil
		})
	}))
	mustDo(t, conn.Prep("SELECT 1").Each(nil))
}

// What calls fetch ahead comes in one round trip, and once only.
func TestPrefetchInterleaved(t *testing.T) {
	t.Parallel()
	const n = 20
	c, conn := begun(t, n)
	const named = "SELECT name FROM numbers WHERE no = ?"
	got := make([]string, n)
	read := func(i int) error {
		if err := c.Prefetch([]driver.Prefetch{driver.NewPrefetch(named, driver.RowName{Of: "numbers", No: int64(i)}).Int(int64(i))}); err != nil {
			return err
		}
		_, err := conn.Prep(named).Int(int64(i)).One(func(r driver.Row) { got[i] = r.Text(0) })
		return err
	}
	mustDo(t, c.Interleave(n, read)) // prepares the statements
	clear(got)
	before := c.RoundTrips()
	mustDo(t, c.Interleave(n, read))
	if trips := c.RoundTrips() - before; trips != 1 {
		t.Errorf("%d round trips", trips)
	}
	for i, name := range got {
		if name != fmt.Sprint(i) {
			t.Errorf("call %d read %q", i, name)
		}
	}
	mustDo(t, conn.Prep("UPDATE numbers SET name = ? WHERE no = ?").Text("changed").Int(0).Exec())
	mustDo(t, read(0))
	if got[0] != "changed" {
		t.Errorf("an old answer was given again: %q", got[0])
	}
}

// What is to be fetched soon comes with the next answer, whoever waits for that. It costs no round
// trip, and holds what was changed before.
func TestPrefetchSoon(t *testing.T) {
	t.Parallel()
	const n = 20
	const named, other = "SELECT name FROM numbers WHERE no = ?", "SELECT no FROM numbers WHERE no = ?"
	rename := func(conn driver.Conn, name string) {
		mustDo(t, conn.Prep("UPDATE numbers SET name = ? WHERE no = ?").Text(name).Int(3).Exec())
	}
	for what, next := range map[string]func(*Conn, driver.Conn) error{
		"a statement": func(_ *Conn, conn driver.Conn) error {
			_, err := conn.Prep(other).Int(1).One(func(driver.Row) {})
			return err
		},
		"a pipeline": func(c *Conn, _ driver.Conn) error {
			return c.RunPipeline([]driver.PipelineQuery{{SQL: other, Bind: func(st driver.Statement) driver.Statement { return st.Int(1) }}})
		},
		"calls together": func(c *Conn, conn driver.Conn) error {
			return c.Interleave(n, func(i int) error {
				_, err := conn.Prep(other).Int(int64(i)).One(func(driver.Row) {})
				return err
			})
		},
		"one that runs alone": func(c *Conn, conn driver.Conn) error {
			return c.Interleave(2, func(i int) error {
				return c.Alone(func() error {
					if i > 0 {
						return nil
					}
					_, err := conn.Prep(other).Int(1).One(func(driver.Row) {})
					return err
				})
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			c, conn := begun(t, n)
			row := driver.RowName{Of: "numbers", No: 3}
			soon := []driver.Prefetch{driver.NewPrefetch(named, row).Int(3)}
			soon[0].Shared = true
			name := func() (name string) {
				_, err := conn.Prep(named).Int(3).One(func(r driver.Row) { name = r.Text(0) })
				mustDo(t, err)
				return name
			}
			for _, want := range []string{"first", "second"} { // statements are prepared, and then used again
				rename(conn, want)
				before := c.RoundTrips()
				c.PrefetchSoon(soon)
				c.PrefetchSoon(soon)
				if trips := c.RoundTrips() - before; trips != 0 {
					t.Errorf("%d round trips at once", trips)
				}
				mustDo(t, next(c, conn))
				if got := name(); got != want {
					t.Errorf("read %q, not %q", got, want)
				}
				if trips := c.RoundTrips() - before; trips != 1 {
					t.Errorf("%d round trips", trips)
				}
				c.DropPrefetched(row)
			}
			c.PrefetchSoon(soon)
			rename(conn, "third")
			if got := name(); got != "third" {
				t.Errorf("read %q before anything else was asked", got)
			}
			c.PrefetchSoon(soon)
			before := c.RoundTrips()
			mustDo(t, c.Commit())
			if trips := c.RoundTrips() - before; trips != 1 {
				t.Errorf("%d round trips to commit", trips)
			}
		})
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
