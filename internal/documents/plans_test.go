package documents

import (
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

// What steps of documents ask in transactions finds rows by an index.
func TestPlansOnSQLite(t *testing.T) {
	fixture.PlansOnSQLite(t, nil, sqlRevisionNo, sqlRevisionID, sqlLatestRevision, sqlRevisionsOf, sqlSomeChunk,
		sqlEmbeddedChunks, sqlStillFailed, sqlFailing)
}

func TestPlansOnPostgres(t *testing.T) {
	row := driver.RowName{}
	var forms []string
	for _, asked := range []driver.Prefetch{prefetchRevisionNo(1), prefetchRevisionID(1, "a"), driver.NewPrefetch(sqlLatestRevision, row).Int(1).Text("a"),
		driver.NewPrefetch(sqlRevisionsOf, row).Int(1).Text("a"), driver.NewPrefetch(sqlSomeChunk, row).Int(1),
		driver.NewPrefetch(sqlEmbeddedChunks, row).Int(1).Int(1).Int(2), driver.NewPrefetch(sqlStillFailed, row).Int(1).Text("a"), prefetchDimensions(1),
		driver.NewPrefetch(sqlFirstDropped, row).Int(0)} {
		forms = append(forms, postgres.AheadForm(asked))
	}
	fixture.PlansOnPostgres(t, append(forms, sqlFailing)...)
}
