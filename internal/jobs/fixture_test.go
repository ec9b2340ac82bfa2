package jobs

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/report"
	"github.com/forebayhq/forebay/internal/tenant"
)

// stores are those that the tests of this package need.
type stores struct {
	DB        *db.DB
	Queues    *queue.Store
	Audit     *audit.Store
	Bus       *bus.Store
	Admission *admission.Store
	Keys      *keys.Store
	Tenants   *tenant.Store
	Jobs      *Store
	Reports   *report.Store
	Backlog   *backlog.Reader
}

// openStores opens a database with them.
func openStores(ctx context.Context, opts db.Options) (*stores, error) {
	return openAudited(ctx, opts, nil)
}

// openAudited has the audit log get events of these types. More domains may join.
func openAudited(ctx context.Context, opts db.Options, audited []forebay.EventType, more ...db.Domain) (*stores, error) {
	queues := &queue.Store{}
	s := &stores{Queues: queues, Audit: &audit.Store{}, Bus: bus.NewStore(queues), Admission: &admission.Store{Store: queues},
		Keys: &keys.Store{Store: queues}, Tenants: &tenant.Store{Store: queues}, Jobs: &Store{Store: queues, Audited: audited},
		Reports: &report.Store{Store: queues}}
	s.Jobs.Admission = s.Admission
	s.Backlog = &backlog.Reader{Queues: queues, Admission: s.Admission}
	var err error
	s.DB, err = db.Open(ctx, opts, append([]db.Domain{s.Queues, s.Audit, s.Bus, s.Admission, s.Jobs, s.Reports, s.Keys, s.Tenants}, more...)...)
	return s, err
}

// fixture opens them on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open: openStores,
	DB:   func(s *stores) *db.DB { return s.DB },
	Parked: func(s *stores, t *db.Tx) int {
		return len(Key.In(s.DB.Writer).Waiters) + len(bus.Key.In(s.DB.Writer).Waiters)
	},
}

type (
	engine  = dbtest.Engine[*stores]
	outside = dbtest.Outside[*stores]
)

func tenantNamed(t testing.TB, s *stores, name string) int64 {
	t.Helper()
	id, err := s.Queues.EnsureTenant(t.Context(), name)
	mustDo(t, err)
	return id
}

func queueOf(t testing.TB, s *stores, name string) int64 {
	t.Helper()
	id, err := s.Queues.EnsureQueue(t.Context(), name)
	mustDo(t, err)
	return id
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB) (*stores, int64, int64) {
	t.Helper()
	return openWith(t, db.Options{Path: dbtest.SQLite(t)})
}

func openWith(t testing.TB, opts db.Options) (s *stores, tenant, queue int64) {
	t.Helper()
	s = fixture.Serving(t, opts)
	return s, tenantNamed(t, s, "default"), queueOf(t, s, "default")
}

// overANetwork opens stores that reach their PostgreSQL through a proxy. few fails if something
// takes more round trips.
func overANetwork(t *testing.T) (s *stores, few func(most int64, what string, do func())) {
	t.Helper()
	direct := dbtest.Postgres(t)
	proxy := pgtest.NewProxy(t, direct)
	s = fixture.Serve(t, db.Options{URL: proxy.URL(direct)})
	t.Cleanup(func() { s.DB.Close() })
	return s, func(most int64, what string, do func()) {
		t.Helper()
		before := proxy.RoundTrips()
		do()
		if trips := proxy.RoundTrips() - before; trips > most { // some are the store's own, by time
			t.Errorf("%s took %d round trips", what, trips)
		}
	}
}

// ear is a domain that hears what its writer is told.
type ear struct {
	db.Passive
	heard chan *db.Notification
}

var earKey = db.NewKey(func(*db.Tx, *ear) *struct{} { return nil })

// saidInTest marks what a test has had said.
const saidInTest db.WordKind = '~'

func (e *ear) Attach(*db.DB)     {}
func (e *ear) Join(w *db.Writer) { earKey.Join(w, e) }

func (e *ear) Notified(n *db.Notification) {
	if n.Has(saidInTest) {
		e.heard <- n
	}
}

// hearing opens a database with two writers. said has the writer for new jobs make some
// transactions, and returns what notifies the other writer of them at once.
func hearing(t *testing.T) (said func(...func(*Tx)) *db.Notification) {
	t.Helper()
	e := &ear{heard: make(chan *db.Notification, 1)}
	s, err := openAudited(t.Context(), db.Options{URL: dbtest.Postgres(t), Serve: true}, nil, e)
	mustDo(t, err)
	t.Cleanup(func() { s.DB.Close() })
	return func(transactions ...func(*Tx)) *db.Notification {
		t.Helper()
		busy := make(visit)
		s.DB.Writer.Visits <- busy
		for _, do := range transactions {
			_, err := db.TransactIn(t.Context(), Key, s.DB.Inserter, db.Op{Stage: db.StageSubmit}, func(x *Tx) (struct{}, error) {
				do(x)
				x.Notify(saidInTest, 0, 0, 0)
				return struct{}{}, nil
			})
			mustDo(t, err)
		}
		close(busy)
		return <-e.heard
	}
}

// visit keeps a writer busy until it is closed.
type visit chan struct{}

func (v visit) Visit() { <-v }
