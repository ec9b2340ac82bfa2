package orchestrate

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/report"
	tenants "github.com/forebayhq/forebay/internal/tenant"
)

// stores are those that the tests of this package need.
type stores struct {
	DB             *db.DB
	Queues         *queue.Store
	Audit          *audit.Store
	Bus            *bus.Store
	Admission      *admission.Store
	Jobs           *jobs.Store
	Orchestrations *Store
	Tenants        *tenants.Store
}

// openStores opens a database with them.
func openStores(ctx context.Context, opts db.Options) (*stores, error) {
	queues := &queue.Store{}
	s := &stores{Queues: queues, Audit: &audit.Store{}, Bus: bus.NewStore(queues), Admission: &admission.Store{Store: queues}, Jobs: &jobs.Store{Store: queues}, Orchestrations: &Store{Store: queues}, Tenants: &tenants.Store{Store: queues}}
	s.Jobs.Admission = s.Admission
	s.Orchestrations.Follow(s.Jobs)
	var err error
	s.DB, err = db.Open(ctx, opts, s.Queues, s.Audit, s.Bus, s.Admission, s.Jobs, &report.Store{Store: queues}, s.Orchestrations, s.Tenants)
	return s, err
}

// fixture opens them on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open: openStores,
	DB:   func(s *stores) *db.DB { return s.DB },
}

type outside = dbtest.Outside[*stores]

func tenantOf(t testing.TB, s *stores, name string) int64 {
	t.Helper()
	id, err := s.Queues.EnsureTenant(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
