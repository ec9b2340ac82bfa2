package signin

import (
	"context"
	"testing"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

var plans = dbtest.Fixture[*db.DB]{
	Open: func(ctx context.Context, o db.Options) (*db.DB, error) { return db.Open(ctx, o) },
	DB:   func(d *db.DB) *db.DB { return d },
}

func TestPlansOnSQLite(t *testing.T) {
	plans.PlansOnSQLite(t, nil, sqlExpired, sqlOldest, sqlInsert, sqlGet, sqlBegins, sqlLatest, sqlOwned, sqlUse, sqlDelete, sqlTenant)
}

func TestPlansOnPostgres(t *testing.T) {
	plans.PlansOnPostgres(t, sqlExpired, sqlOldest, sqlInsert, sqlGet, sqlBegins, sqlLatest, sqlOwned, sqlUse, sqlDelete, sqlTenant)
}
