package documents

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/report"
)

// stores are those that the tests of this package need.
type stores struct {
	DB        *db.DB
	Queues    *queue.Store
	Audit     *audit.Store
	Bus       *bus.Store
	Admission *admission.Store
	Jobs      *jobs.Store
	Documents *Store
	Keys      *keys.Store
}

// openStores opens a database with them.
func openStores(ctx context.Context, opts db.Options) (*stores, error) {
	queues := &queue.Store{}
	s := &stores{Queues: queues, Audit: &audit.Store{}, Bus: bus.NewStore(queues), Admission: &admission.Store{Store: queues}, Jobs: &jobs.Store{Store: queues}, Documents: &Store{Store: queues}, Keys: &keys.Store{Store: queues}}
	s.Jobs.Admission = s.Admission
	s.Documents.Follow(s.Jobs)
	var err error
	s.DB, err = db.Open(ctx, opts, s.Queues, s.Audit, s.Bus, s.Admission, s.Jobs, &report.Store{Store: queues}, s.Documents, s.Keys)
	return s, err
}

// fixture opens them on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open: openStores,
	DB:   func(s *stores) *db.DB { return s.DB },
}

func tenantOf(t testing.TB, s *stores, name string) int64 {
	t.Helper()
	id, err := s.Queues.EnsureTenant(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
