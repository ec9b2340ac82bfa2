package files

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// stores are those that the tests of this package need.
type stores struct {
	DB     *db.DB
	Queues *queue.Store
	Files  *Store
}

// fixture opens them on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open: func(ctx context.Context, opts db.Options) (*stores, error) {
		queues := &queue.Store{}
		s := &stores{Queues: queues, Files: &Store{queues}}
		var err error
		s.DB, err = db.Open(ctx, opts, s.Queues, s.Files)
		return s, err
	},
	DB:     func(s *stores) *db.DB { return s.DB },
	Parked: func(*stores, *db.Tx) int { return 0 },
}

// onClocks tests new stores on SQLite and on PostgreSQL, by a clock that the test moves.
func onClocks(t *testing.T, test func(t *testing.T, st *stores, pass func(time.Duration))) {
	t.Parallel()
	run := func(t *testing.T, e dbtest.Engine[*stores]) {
		st := e.Open(t)
		defer func() {
			if err := st.DB.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, st, func(d time.Duration) { e.Pass(st, d) })
	}
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "forebay.db")
		synctest.Test(t, func(t *testing.T) { run(t, fixture.Bubble(path)) })
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		run(t, fixture.ClockSchema(dbtest.NewClockServer(t)))
	})
}

// What is asked finds rows by an index.
func TestPlansOnSQLite(t *testing.T) {
	fixture.PlansOnSQLite(t, nil, statements()...)
}

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, statements()...)
}

func statements() []string {
	list := []string{sqlFileByKey, sqlFileByRequest, sqlFile, sqlUse, sqlUnuse, sqlContent, sqlDelete, sqlExpired, sqlUnneeded, sqlHide, sqlForget}
	for _, purpose := range []bool{false, true} {
		for _, oldest := range []bool{false, true} {
			list = append(list, lists[purpose][oldest])
		}
	}
	return list
}
