package admission

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// stores are those that the tests of this package need.
type stores struct {
	DB        *db.DB
	Queues    *queue.Store
	Audit     *audit.Store
	Bus       *bus.Store
	Admission *Store
}

// openStores opens a database with them.
func openStores(ctx context.Context, opts db.Options) (*stores, error) {
	queues := &queue.Store{}
	s := &stores{Queues: queues, Audit: &audit.Store{}, Bus: bus.NewStore(queues), Admission: &Store{Store: queues}}
	var err error
	s.DB, err = db.Open(ctx, opts, s.Queues, s.Audit, s.Bus, s.Admission, noJobs{})
	return s, err
}

// noJobs is a domain that holds no jobs.
type noJobs struct{}

func (noJobs) Attach(*db.DB)                                           {}
func (noJobs) Join(w *db.Writer)                                       { Key.In(w).Jobs = noJobs{} }
func (noJobs) Unblock(string, int64)                                   {}
func (noJobs) MayGo(map[int64]int64)                                   {}
func (noJobs) Released(*db.Tx, queue.Subqueue, int64, int64, ...int64) {}

// fixture opens them on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open:   openStores,
	DB:     func(s *stores) *db.DB { return s.DB },
	Parked: func(s *stores, t *db.Tx) int { return len(bus.Key.In(s.DB.Writer).Waiters) },
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
