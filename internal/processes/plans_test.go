package processes

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
)

var plans = dbtest.Fixture[*db.DB]{
	Open: func(ctx context.Context, o db.Options) (*db.DB, error) { return db.Open(ctx, o) },
	DB:   func(d *db.DB) *db.DB { return d },
}

func TestPlansOnSQLite(t *testing.T) {
	small := []string{"SCAN queues", "SCAN q", "SCAN l", "SCAN x", "SCAN CONSTANT ROW"} // queues, and what a step has found
	plans.PlansOnSQLite(t, small, sqlBeat, sqlList, sqlForget, sqlLeave, sqlFlows, sqlLockedOfFlow, callColumns+" FROM (SELECT ?1 AS no) x"+ofCalls)
}

func TestPlansOnPostgres(t *testing.T) {
	plans.PlansOnPostgres(t, sqlBeat, sqlList, sqlForget, sqlLeave, sqlLockedOfFlow, callColumns+driver.OfNumbersShared+ofCalls)
}
