package responses

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/report"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// stores are those that the tests of this package need.
type stores struct {
	DB        *db.DB
	Queues    *queue.Store
	Bus       *bus.Store
	Jobs      *jobs.Store
	Responses *Store
}

// openStores opens a database with them.
func openStores(ctx context.Context, opts db.Options) (*stores, error) {
	queues := &queue.Store{}
	s := &stores{Queues: queues, Bus: bus.NewStore(queues), Jobs: &jobs.Store{Store: queues}, Responses: &Store{Store: queues}}
	s.Jobs.Admission = &admission.Store{Store: queues}
	s.Responses.Follow(s.Jobs)
	var err error
	s.DB, err = db.Open(ctx, opts, s.Queues, &audit.Store{}, s.Bus, s.Jobs.Admission, s.Jobs, &report.Store{Store: queues}, s.Responses)
	return s, err
}

// fixture opens them on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open: openStores,
	DB:   func(s *stores) *db.DB { return s.DB },
}

// maker makes responses of a tenant.
type maker struct {
	testing.TB
	*stores
	tenant, queue int64
	serial        int
}

func newMaker(t testing.TB, s *stores) *maker {
	t.Helper()
	m := &maker{TB: t, stores: s}
	var err error
	m.tenant, err = s.Queues.EnsureTenant(t.Context(), "acme")
	m.check(err)
	m.queue, err = s.Queues.EnsureQueue(t.Context(), "responses")
	m.check(err)
	return m
}

func (m *maker) check(err error) {
	if m.Helper(); err != nil {
		m.Fatal(err)
	}
}

// row is a background response that is not stored yet.
func (m *maker) row() NewRow {
	m.serial++
	id := fmt.Sprintf("resp_%026d", m.serial)
	return NewRow{ID: id, Tenant: m.tenant, Status: bridge.StatusQueued, Model: "chat", Keep: time.Hour, Request: Payload{Inline: []byte(`{"input":"x"}`), Size: 13},
		Repeat: digest(id), Hash: digest("body"), Events: firstEvents, State: bridge.State{Sequence: 2},
		Job: &jobs.NewJob{ID: fmt.Sprintf("job_%026d", m.serial), Tenant: m.tenant, Queue: m.queue, Task: TaskName("chat"), MaxAttempts: 3, Input: []byte("{}"), InputSize: 2}}
}

// add stores one.
func (m *maker) add() Row {
	m.Helper()
	n := m.row()
	if existing, err := m.Responses.Add(m.Context(), n); err != nil || existing != "" {
		m.Fatal(existing, err)
	}
	return m.read(n.ID)
}

func (m *maker) read(id string) Row {
	m.Helper()
	row, err := m.Responses.Response(m.Context(), m.tenant, id)
	m.check(err)
	return row
}

// begin begins to write a response's events.
func (m *maker) begin(row Row, runner int64) writing {
	m.Helper()
	_, err := m.Responses.Begin(m.Context(), m.tenant, row.ID, runner, row.Job)
	m.check(err)
	return writing{no: row.No, tenant: m.tenant, seq: row.Seq, id: row.ID, runner: runner}
}

// group is one event, after the first so many.
func group(from int64) Group {
	return Group{Data: []byte("{\"type\":\"x\"}\n"), From: bridge.State{Sequence: from}, Then: bridge.State{Sequence: from + 1}}
}

var object = Payload{Inline: []byte(`{"status":"completed"}`), Size: 22}

// isLost fails unless an error says that somebody else writes, or nobody may.
func (m *maker) isLost(err error) {
	if m.Helper(); err != forebay.ErrLockLost {
		m.Errorf("not refused: %v", err)
	}
}
