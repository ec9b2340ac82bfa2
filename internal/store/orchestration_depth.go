package store

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
)

// OpenCount is how many instances of all tenants stand in a status.
type OpenCount struct {
	Status    forebay.OrchestrationStatus
	Instances int64
}

// OpenOrchestrations counts the instances that are not over, up to limit of all together.
func (s *Store) OpenOrchestrations(ctx context.Context, limit int64) (counts []OpenCount, err error) {
	err = s.read(ctx, func(c conn) error {
		counts = nil
		for _, status := range forebay.OrchestrationStatuses {
			if !status.Terminal() {
				counts = append(counts, OpenCount{Status: status})
			}
		}
		return c.prep("SELECT status, count(*) FROM (SELECT status FROM orchestration_turns LIMIT ? + 0) x GROUP BY status").int(limit).each(func(r row) error {
			for i := range counts {
				if string(counts[i].Status) == r.text(0) {
					counts[i].Instances = r.int(1)
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

// maxTurnPools bounds the orchestrators, those of each tenant by themselves, whose turns are looked at.
const maxTurnPools = 1000

const sqlOldestTurns = `
SELECT p.name, (SELECT t.visible FROM orchestration_turns t WHERE t.pool = p.no AND t.visible <= ? ORDER BY t.visible LIMIT 1)
FROM orchestration_pools p WHERE p.kind = ? ORDER BY p.no LIMIT ? + 0`

// OldestTurns looks at the turns of each orchestrator that has had instances, of all tenants.
func (s *Store) OldestTurns(ctx context.Context) (turns []OldestTurn, err error) {
	err = s.read(ctx, func(c conn) error {
		turns = nil
		at := map[string]int{}
		now := c.now()
		return c.prep(sqlOldestTurns).int(now).int(int64(WorkTurn)).int(maxTurnPools).each(func(r row) error {
			i, known := at[r.text(0)]
			if !known {
				i, at[r.text(0)] = len(turns), len(turns)
				turns = append(turns, OldestTurn{Orchestrator: r.text(0)})
			}
			if !r.isNull(1) {
				turns[i].Age = max(turns[i].Age, time.Duration(now-r.int(1))*time.Millisecond)
			}
			return nil
		})
	})
	return turns, err
}
