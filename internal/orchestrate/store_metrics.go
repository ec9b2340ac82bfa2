package orchestrate

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/orchestrate/statements"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// OpenCount is the number of instances of all tenants in a status.
type OpenCount struct {
	Status    forebay.OrchestrationStatus
	Instances int64
}

// OpenOrchestrations counts the open instances by status, up to limit in total.
func (s *Store) OpenOrchestrations(ctx context.Context, limit int64) (counts []OpenCount, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		counts = nil
		for _, status := range forebay.OrchestrationStatuses {
			if !status.Terminal() {
				counts = append(counts, OpenCount{Status: status})
			}
		}
		return c.Prep("SELECT status, count(*) FROM (SELECT status FROM orchestration_items LIMIT ? + 0) x GROUP BY status").Int(limit).Each(func(r driver.Row) error {
			for i := range counts {
				if string(counts[i].Status) == r.Text(0) {
					counts[i].Instances = r.Int(1)
				}
			}
			return nil
		})
	})
	return counts, err
}

// OldestItem is how long the oldest ready work item of an orchestrator has waited; 0: none is
// ready.
type OldestItem struct {
	Orchestrator string
	Age          time.Duration
}

// queuesPage is how many queues one read looks at.
const queuesPage = 1000

// OldestReady returns the oldest ready work item of each orchestrator that has had instances.
func (s *Store) OldestReady(ctx context.Context) (orchestrations []OldestItem, err error) {
	at := map[string]int{}
	for last, seen := int64(0), queuesPage; err == nil && seen == queuesPage; {
		above := last
		err = s.Read(ctx, func(c driver.Conn) error {
			seen = 0
			now := c.Now()
			return c.Prep(statements.OldestReady).Int(now).Int(int64(workqueues.Orchestrations)).Int(above).Int(queuesPage).Each(func(r driver.Row) error {
				seen++
				last = r.Int(0)
				name := r.Text(1)
				i, known := at[name]
				if !known {
					i, at[name] = len(orchestrations), len(orchestrations)
					orchestrations = append(orchestrations, OldestItem{Orchestrator: name})
				}
				if !r.IsNull(2) {
					orchestrations[i].Age = max(orchestrations[i].Age, time.Duration(now-r.Int(2))*time.Millisecond)
				}
				return nil
			})
		})
	}
	return orchestrations, err
}
