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
	// A machine that is slow by the whole delay still has the time of a row, as there are many.
	const rows = 100
	for range 4 {
		transact(rows)
	}
	var way time.Duration
	var most int
	_, err = Transact(t.Context(), s.Writer, Op{Stage: StageChange}, func(t *Tx) (int, error) {
		way, most = t.Conn.Driver.(*postgres.Conn).Latency(), t.w.sizer.rows(false)
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if way < delay {
		t.Errorf("a round trip takes %v, its way %v", delay, way)
	}
	if counted := int(workByFlush * delay / (2 * delay / rows)); most <= 2*counted { // had the way counted
		t.Errorf("a transaction takes %d rows", most)
	}
}
