package feed

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
	plans.PlansOnSQLite(t, []string{"SCAN queues", "SCAN CONSTANT ROW", "SCAN x"}, DescribedColumns+" FROM (SELECT ?1 AS no) x"+OfDescribedJobs, sqlTenantName, sqlQueueNames)
}

func TestPlansOnPostgres(t *testing.T) {
	plans.PlansOnPostgres(t, DescribedColumns+driver.OfNumbersShared+OfDescribedJobs, sqlTenantName)
}
