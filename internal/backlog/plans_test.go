package backlog

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

func TestLinesPlansOnSQLite(t *testing.T) {
	found := []string{"SCAN queues", "SCAN x", "SCAN y", "SCAN l", "SCAN s", "SCAN found", "SCAN CONSTANT ROW"} // what a step has found
	plans.PlansOnSQLite(t, found, sqlLineFlows, lineColumns+" FROM (SELECT ?1 AS no) x"+ofLines, sqlLastJob, sqlLinesBySample)
}

func TestLinesPlansOnPostgres(t *testing.T) {
	plans.PlansOnPostgres(t, lineColumns+driver.OfNumbersShared+ofLines, sqlLastJob)
}
