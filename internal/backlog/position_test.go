package backlog

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/flows"
	"github.com/forebayhq/forebay/internal/queue"
)

type stores struct {
	db      *db.DB
	queues  *queue.Store
	backlog *Reader
}

// fixture opens the stores on every engine.
var fixture = dbtest.Fixture[*stores]{
	Open: func(ctx context.Context, opts db.Options) (*stores, error) {
		queues := &queue.Store{}
		s := &stores{queues: queues, backlog: &Reader{Queues: queues, Admission: &admission.Store{Store: queues}}}
		var err error
		s.db, err = db.Open(ctx, opts, queues, &audit.Store{}, bus.NewStore(queues), s.backlog.Admission, noJobs{})
		return s, err
	},
	DB:     func(s *stores) *db.DB { return s.db },
	Parked: func(s *stores, t *db.Tx) int { return len(bus.Key.In(s.db.Writer).Waiters) },
}

// noJobs is a domain that holds no jobs.
type noJobs struct{}

func (noJobs) Attach(*db.DB)                                           {}
func (noJobs) Join(w *db.Writer)                                       { admission.Key.In(w).Jobs = noJobs{} }
func (noJobs) Unblock(string, int64)                                   {}
func (noJobs) MayGo(map[int64]int64)                                   {}
func (noJobs) Released(*db.Tx, queue.Subqueue, int64, int64, ...int64) {}

// However many flows a subqueue has, a job's position visits few of them. It says that not all
// jobs ahead were counted.
func TestPositionVisitsFewFlows(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const tenants, jobs, limit = 700, 14_000, 100
		queueID, err := s.queues.EnsureQueue(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		subqueue := int64(queue.SubqueueOf(queueID, queue.SubqueueMain))
		var now int64
		// Each tenant has two jobs of each of ten priorities, of its own one of 40 classes or of
		// class 1.
		_, err = db.TransactIn(t.Context(), admission.Key, s.db.Writer, db.Op{Stage: db.StageChange}, func(tx *admission.Tx) (struct{}, error) {
			now = tx.Now
			return struct{}{}, tx.Prep("INSERT INTO messages (seq, subqueue, flow, visible_at, size) WITH RECURSIVE c(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM c WHERE i < ?3)" +
				" SELECT i, ?1 + 0, (1 + i % 700) * 1024 + CASE WHEN i % 2 = 0 THEN 16 ELSE 32 + i % 40 * 16 END + i / 700 % 10, ?2 - 14000 + i, 1 FROM c").Int(subqueue).Int(now).Int(jobs).Exec()
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, seq := range []int64{2, jobs / 2, jobs} {
			flow := (1+seq%tenants)*flows.PerTenant + flows.PerClass + seq/tenants%10
			job := Job{Seq: seq, Tenant: flows.TenantOf(flow), Subqueue: queue.Subqueue(subqueue), Flow: flow, Visible: now - jobs + seq}
			visited := 0
			err := s.db.Read(t.Context(), func(c driver.Conn) error {
				visited = 0
				return c.Prep(sqlListOthers).Int(subqueue).Int(flow).Int(flows.PerClass).Int(db.Never).Int(maxFlowSteps).Each(func(driver.Row) error { visited++; return nil })
			})
			if err != nil || visited != maxFlowSteps {
				t.Errorf("%d flows are visited (%v)", visited, err)
			}
			at, err := s.backlog.Position(t.Context(), &job, nil, limit)
			if err != nil || at.Counted == 0 || at.Counted > at.Jobs || at.Own > jobs/tenants || at.Jobs > (at.Own+1)*tenants {
				t.Errorf("job %d: %+v (%v)", seq, at.Ahead, err)
			}
		}
	})
}

func TestPlans(t *testing.T) {
	statements := []string{sqlAheadOfOwn, sqlAheadOfOwnLater, sqlAheadOfOthers, sqlAheadOfOthersLater}
	fixture.PlansOnPostgres(t, append(statements, sqlFlowDepths)...)
	allowed := []string{"SCAN l", "SCAN a", "SCAN b", "SCAN x", "SCAN tenants USING INDEX tenants_paused"}
	fixture.PlansOnSQLite(t, allowed, append(statements, sqlFlowDepths, sqlAheadInFlow, sqlAheadInFlowLater, sqlListOthers)...)
}
