package dbtest

import (
	"context"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// polling is how often a process looks at everything, which may begin at the beginning of indexes.
const polling = 2 * time.Second

// FewEntriesRead runs something on a PostgreSQL where somebody keeps an old snapshot, so that no
// entry of a row that is gone leaves an index. It fails if scans of these indexes have read more
// than so many entries for each of n things that were done. A look at everything, once in a
// while, may read all of them.
func (f Fixture[S]) FewEntriesRead(t *testing.T, n int, most int64, indexes []string, run func(S)) {
	t.Helper()
	ctx, url := t.Context(), Postgres(t)
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) }) // the test is over
		return c
	}
	holder := connect()
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1 FROM pg_class LIMIT 1"} {
		if _, err := holder.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	s := f.Serve(t, db.Options{URL: url})
	began := time.Now()
	run(s)
	looks := 2 + int64(time.Since(began)/polling)
	if err := f.DB(s).Close(); err != nil {
		t.Error(err)
	}
	if _, err := pgtest.Terminate(ctx, url); err != nil { // a server process reports what it has read by its end
		t.Fatal(err)
	}
	var read int64
	err := connect().QueryRow(ctx, "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE indexrelname = ANY ($1)", indexes).Scan(&read)
	if err != nil {
		t.Fatal(err)
	}
	// Each thing leaves some entries: one when it comes, one when it is locked, and so on.
	const left = 4
	allowed := int64(n)*most + looks*left*int64(n)
	t.Logf("%d entries read for %d, %d are allowed", read, n, allowed)
	if read > allowed {
		t.Errorf("%d entries read for %d, %d are allowed", read, n, allowed)
	}
}
