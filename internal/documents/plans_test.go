package documents

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

// What steps of documents ask in transactions finds rows by an index.
func TestPlansOnSQLite(t *testing.T) {
	dropped := []string{"SCAN document_revisions USING INDEX document_revisions_dropped"} // which are few
	fixture.PlansOnSQLite(t, dropped, sqlForgetIndex, sqlRevisionNo, sqlRevisionID, sqlLatestRevision, sqlRevisionsOf, sqlCountChunks,
		sqlEmbeddedChunks, sqlStillFailed, sqlFailing, unsorted(sqlRevisionJobs), unsorted(sqlDocumentJobs))
}

func unsorted(sql string) string { return strings.Replace(sql, callsFirst, " LIMIT ? + 0", 1) }

func TestPlansOnPostgres(t *testing.T) {
	row := driver.RowName{}
	var forms []string
	for _, asked := range []driver.Prefetch{prefetchRevisionNo(1), prefetchRevisionID(1, "a"), driver.NewPrefetch(sqlLatestRevision, row).Int(1).Text("a"),
		prefetchRevisionsOf(1, "a"), prefetchChunks(1),
		driver.NewPrefetch(sqlEmbeddedChunks, row).Int(1).Int(1).Int(2), prefetchFailed("a", 1), prefetchDimensions(1),
		driver.NewPrefetch(sqlFirstDropped, row).Int(0)} {
		forms = append(forms, postgres.AheadForm(asked))
	}
	for _, asked := range []driver.Prefetch{prefetchRevisionJobs(1), prefetchDocumentJobs(1, "a")} {
		asked.SQL = unsorted(asked.SQL) // they sort the jobs of a document
		forms = append(forms, postgres.AheadForm(asked))
	}
	fixture.PlansOnPostgres(t, append(forms, sqlFailing)...)
}
