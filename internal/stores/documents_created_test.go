package stores_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/documents"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/listing"
	"github.com/forebayhq/forebay/internal/stores"
)

// Lists of documents by the time of creation hold what a look at every document finds, page
// after page.
func TestDocumentsByTimeOfCreation(t *testing.T) {
	everything.WithStores(t, func(t *testing.T, s *stores.Stores) {
		tenant, queue := tenantNumber(t, s, "t"), queueNumber(t, s, "q")
		const count, apart = 20, 10 * listing.CreatedSlack
		for i := range count {
			id := fmt.Sprint("doc", i)
			rev := documents.Revision{ID: "rev_" + id, Tenant: tenant, Hash: []byte(id), MediaType: "text/plain", Blob: id}
			job := jobs.NewJob{ID: "job_" + id, Tenant: tenant, Queue: queue, Task: "document-split", MaxAttempts: 1}
			if _, err := s.Documents.AddRevision(t.Context(), documents.NewRevision{Revision: rev, DocumentID: id, Split: job}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
			return struct{}{}, t.Prep("UPDATE documents SET created_at = ? * CAST(substr(id, 4) AS BIGINT)").Int(apart).Exec()
		}); err != nil {
			t.Fatal(err)
		}
		for _, c := range [][2]int64{{0, 0}, {5 * apart, 0}, {0, 5 * apart}, {5 * apart, 15 * apart}, {5*apart + 1, 15*apart - 1}, {20 * apart, 0}, {0, 1}, {9 * apart, 3 * apart}} {
			var want, got []string
			for i := count - 1; i >= 0; i-- {
				if at := int64(i) * apart; at >= c[0] && (c[1] == 0 || at < c[1]) {
					want = append(want, fmt.Sprint("doc", i))
				}
			}
			for q := (documents.DocumentQuery{Tenant: tenant, CreatedAfter: c[0], CreatedBefore: c[1], Limit: 3}); ; {
				page, next, err := s.Documents.Documents(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range page {
					got = append(got, d.ID)
				}
				if q.Below = next; next == 0 {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("between %d and %d are %v, not %v", c[0], c[1], got, want)
			}
		}
		// What is out of order by more than clocks are set is not found, which shows that the history
		// is not walked.
		if _, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
			return struct{}{}, t.Prep("UPDATE documents SET created_at = ? WHERE id IN ('doc0', 'doc19')").Int(10 * apart).Exec()
		}); err != nil {
			t.Fatal(err)
		}
		page, _, err := s.Documents.Documents(t.Context(), documents.DocumentQuery{Tenant: tenant, CreatedAfter: 10 * apart, CreatedBefore: 10*apart + 1, Limit: 9})
		if err != nil || len(page) != 1 || page[0].ID != "doc10" {
			t.Errorf("found %d (%v)", len(page), err)
		}
	})
}
