package orchestrate

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// OpenCount is how many instances of all tenants stand in a status.
type OpenCount struct {
	Status    forebay.OrchestrationStatus
	Instances int64
}

// OpenOrchestrations counts the instances that are not over, up to limit of all together.
func (s *Store) OpenOrchestrations(ctx context.Context, limit int64) (counts []OpenCount, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		counts = nil
		for _, status := range forebay.OrchestrationStatuses {
			if !status.Terminal() {
				counts = append(counts, OpenCount{Status: status})
			}
		}
		return c.Prep("SELECT status, count(*) FROM (SELECT status FROM orchestration_turns LIMIT ? + 0) x GROUP BY status").Int(limit).Each(func(r driver.Row) error {
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

// OldestTurn is how long the turn of an orchestrator has been ready that has been so longest; 0: none is.
type OldestTurn struct {
	Orchestrator string
	Age          time.Duration
}

// turnPoolsPage is at the turns of how many orchestrators, those of each tenant by themselves, one read looks.
const turnPoolsPage = 1000

const sqlOldestTurns = `
SELECT p.no, p.name, (SELECT t.visible FROM orchestration_turns t WHERE t.pool = p.no AND t.visible <= ? ORDER BY t.visible LIMIT 1)
FROM orchestration_pools p WHERE p.kind = ? AND p.no > ? ORDER BY p.no LIMIT ? + 0`

// OldestTurns looks at the turns of each orchestrator that has had instances, of all tenants.
func (s *Store) OldestTurns(ctx context.Context) (turns []OldestTurn, err error) {
	at := map[string]int{}
	for last, seen := int64(0), turnPoolsPage; err == nil && seen == turnPoolsPage; {
		above := last
		err = s.Read(ctx, func(c driver.Conn) error {
			seen = 0
			now := c.Now()
			return c.Prep(sqlOldestTurns).Int(now).Int(int64(WorkTurn)).Int(above).Int(turnPoolsPage).Each(func(r driver.Row) error {
				seen++
				last = r.Int(0)
				name := r.Text(1)
				i, known := at[name]
				if !known {
					i, at[name] = len(turns), len(turns)
					turns = append(turns, OldestTurn{Orchestrator: name})
				}
				if !r.IsNull(2) {
					turns[i].Age = max(turns[i].Age, time.Duration(now-r.Int(2))*time.Millisecond)
				}
				return nil
			})
		})
	}
	return turns, err
}
