package db

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/raced"
)

// The way to a distant server is not the work of the rows. Transactions take as many of them as
// there is time for, and do not stay small because the server is far away.
func TestADistantServerTakesManyRows(t *testing.T) {
	t.Parallel()
	raced.Skip(t, raced.Waiting)
	const delay = 200 * time.Millisecond
	database := pgtest.Database(t)
	proxy := pgtest.NewProxy(t, database)
	s, err := Open(t.Context(), Options{URL: proxy.URL(database), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	transact := func(rows int) {
		t.Helper()
		_, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange, Rows: rows}, func(t *Tx) (int, error) {
			_, err := t.Prep("SELECT 1").One(func(driver.Row) {})
			return 0, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	transact(1) // which prepares the statements
	proxy.Delay(delay)
	for range 4 {
		transact(1)
	}
	// A busy machine takes longer for the rows. But it seldom takes the whole way again, which each
	// transaction would if the way counted.
	const rows = 100
	const counted = workByFlush * rows // twice what it takes if the two ways of a transaction count
	var way time.Duration
	var most int
	for n := 0; n < 100 && most <= counted; n++ {
		transact(rows)
		_, err = Transact(t.Context(), s.Writer, Op{Stage: StageChange}, func(t *Tx) (int, error) {
			way, most = t.Conn.Driver.(*postgres.Conn).Latency(), t.w.sizer.rows(false)
			return 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if way < delay {
		t.Errorf("a round trip takes %v, its way %v", delay, way)
	}
	if most <= counted {
		t.Errorf("a transaction takes %d rows", most)
	}
}
