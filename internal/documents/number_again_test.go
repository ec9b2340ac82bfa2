package documents

import (
	"errors"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/jobs"
)

// SQLite gives numbers of chunks that were removed to others. What was dropped leaves the index
// then without what is live.
func TestNumbersOfRemovedChunksAreGivenAgain(t *testing.T) {
	onShelves(t, func(t *testing.T, shelf shelf) {
		query := []float32{1, 0, 0, 0}
		s := New(Options{Store: shelf.Documents})
		s.indexes.dropEvery = time.Hour
		search := func(want string) {
			t.Helper()
			found, err := s.Search(t.Context(), "default", forebay.SearchRequest{Mode: forebay.SearchVector, Vector: query, Limit: 1})
			if shelf.check(err); len(found.Items) != 1 || found.Items[0].Text != want {
				t.Fatalf("found %+v, want %s", found.Items, want)
			}
		}
		remove := func(document string) {
			t.Helper()
			_, err := shelf.Documents.DeleteDocument(t.Context(), shelf.tenant, document, audit.Act{})
			shelf.check(err)
			for more := true; more; {
				_, more, err = shelf.Documents.PurgeDocuments(t.Context())
				shelf.check(err)
			}
		}
		add := func(document string, chunks int) { shelf.add(document, document, chunks, query) }
		add("first", 1)
		search("first")
		remove("first")
		add("second", 5)
		search("second") // what was dropped was removed a moment ago
		remove("second")
		add("smaller", 3)
		search("smaller")
		remove("smaller")
		add("larger", 5)
		search("larger")
		s.indexes.dropEvery = 0
		search("larger")
		if index := s.indexes.of(shelf.tenant); index.index.Len() != 5 {
			t.Errorf("%d codes are in memory", index.index.Len())
		}
	})
}

// A job that is late does not store its chunks in a content that has the number of its own, which
// was removed.
func TestLateJobsKeepOutOfContentsWithTheirNumber(t *testing.T) {
	onShelves(t, func(t *testing.T, shelf shelf) {
		removed := shelf.split("removed", "removed", 2, "")
		_, err := shelf.Documents.DeleteDocument(t.Context(), shelf.tenant, "removed", audit.Act{})
		shelf.check(err)
		for more := true; more; {
			_, more, err = shelf.Documents.PurgeDocuments(t.Context())
			shelf.check(err)
		}
		queue, err := shelf.Queues.EnsureQueue(t.Context(), forebay.DefaultQueue)
		shelf.check(err)
		other := NewRevision{Revision: Revision{ID: "rev_other", Tenant: tenantOf(t, shelf.stores, "other"), Hash: []byte("other"), MediaType: "text/plain", Blob: "t/2/other/content"}, DocumentID: "other"}
		other.Split = jobs.NewJob{ID: "job_othersplit", Tenant: other.Tenant, Queue: queue, Task: "split", MaxAttempts: 1, Input: []byte("{}"), InputSize: 2}
		_, err = shelf.Documents.AddRevision(t.Context(), other)
		shelf.check(err)
		if err := shelf.Documents.BeginSplit(t.Context(), removed, 7); !errors.Is(err, errRevisionGone) {
			t.Errorf("the late job begins: %v", err)
		}
	})
}
