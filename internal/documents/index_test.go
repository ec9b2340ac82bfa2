package documents

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/vector"
)

// shelf is a store with documents that came without a pipeline.
type shelf struct {
	*testing.T
	*stores
	tenant int64
}

func openShelf(t *testing.T, o db.Options) shelf {
	t.Helper()
	s := fixture.Serving(t, o)
	return shelf{t, s, tenantOf(t, s, "default")}
}

// onShelves runs a test on either engine.
func onShelves(t *testing.T, run func(*testing.T, shelf)) {
	fixture.WithStores(t, func(t *testing.T, s *stores) { run(t, shelf{t, s, tenantOf(t, s, "default")}) })
}

func (s shelf) check(err error) {
	if s.Helper(); err != nil {
		s.Fatal(err)
	}
}

// split makes a content of a document that is to be embedded, in so many chunks. A key pays for
// it.
func (s shelf) split(document, content string, chunks int, key string) Revision {
	s.Helper()
	ctx := s.Context()
	queue, err := s.Queues.EnsureQueue(ctx, forebay.DefaultQueue)
	s.check(err)
	job := func(name string) jobs.NewJob {
		return jobs.NewJob{ID: "job_" + content + name, Tenant: s.tenant, Queue: queue, Task: name, MaxAttempts: 1, Input: []byte("{}"), InputSize: 2}
	}
	rev := Revision{ID: "rev_" + content, Tenant: s.tenant, Hash: []byte(content), MediaType: "text/plain", Blob: "t/1/" + content + "/content", KeyID: key}
	_, err = s.Documents.AddRevision(ctx, NewRevision{Revision: rev, DocumentID: document, Split: job("split")})
	s.check(err)
	rev, err = s.Documents.RevisionOf(ctx, s.tenant, rev.ID)
	s.check(err)
	result := SplitResult{Chunks: chunks, Jobs: []DocumentJob{{Branch: BranchEmbedding, Last: int64(chunks) - 1, Job: job("embed")}, {Branch: BranchMetadata, Job: job("metadata")}}}
	for n := range chunks {
		result.Rest = append(result.Rest, NewChunk{Number: n, Text: content})
	}
	s.check(s.Documents.BeginSplit(ctx, rev, 7))
	s.check(s.Documents.EndSplit(ctx, s.tenant, rev.No, 7, "job_"+content+"split", result))
	return rev
}

// add makes a content of a document with so many chunks live, all of that vector.
func (s shelf) add(document, content string, chunks int, unit []float32) {
	s.Helper()
	ctx, rev := s.Context(), s.split(document, content, chunks, "")
	texts, err := s.Documents.Unembedded(ctx, rev.No, 0, int64(chunks))
	s.check(err)
	vectors := make([]ChunkVector, chunks)
	for i, text := range texts {
		vectors[i] = ChunkVector{Chunk: text.No, Vector: vector.Bytes(unit), Code: vector.Code(unit)}
	}
	s.check(s.Documents.RecordVectors(ctx, rev, "job_"+content+"embed", len(unit), vectors))
	s.check(s.Documents.RecordMetadata(ctx, rev, "job_"+content+"metadata", Described{}))
}

// Many nearer chunks may be deleted or replaced. The first search after that still finds the live
// ones: at once in the process that did it, and in others once they are notified.
func TestDroppedVectorsLeaveTheIndex(t *testing.T) {
	t.Parallel()
	query, other := []float32{1, 0, 0, 0}, []float32{0, 1, 0, 0}
	const many = 4*minCandidates + 100 // more than the rounds of a search pass over
	run := func(t *testing.T, ours shelf, searching shelf) {
		s := New(Options{Store: searching.Documents})
		notified, stop := searching.Documents.WatchDropped(searching.tenant)
		defer stop()
		find := func() string {
			t.Helper()
			found, err := s.Search(t.Context(), "default", forebay.SearchRequest{Mode: forebay.SearchVector, Vector: query, Limit: 1})
			if err != nil || len(found.Items) > 1 {
				t.Fatalf("found %+v, %v", found.Items, err)
			}
			if len(found.Items) == 0 {
				return "nothing"
			}
			return found.Items[0].Text
		}
		search := func(want string) {
			t.Helper()
			if found := find(); found != want {
				t.Fatalf("found %s, want %s", found, want)
			}
		}
		// Another process is notified a moment later, and may be notified without a reason.
		dropped := func(want string) {
			t.Helper()
			for found := ""; found != want; {
				select {
				case <-notified:
				case <-time.After(20 * time.Second):
					t.Fatalf("found %s, want %s", found, want)
				}
				if found = find(); ours == searching && found != want {
					t.Fatalf("found %s, want %s", found, want)
				}
			}
		}
		ours.add("far", "far", 1, other)
		ours.add("near", "near", many, query)
		search("near")
		ours.add("near", "replaced", 1, []float32{0.6, 0.8, 0, 0})
		dropped("replaced")
		ours.add("nearer", "nearer", many, query)
		search("nearer")
		if _, err := ours.Documents.DeleteDocument(t.Context(), ours.tenant, "nearer", audit.Act{}); err != nil {
			t.Fatal(err)
		}
		dropped("replaced")
		if index := s.indexes.of(searching.tenant); index.index.Len() != 2 || len(index.went) != 2 {
			t.Errorf("%d codes of %d contents are in memory", index.index.Len(), len(index.went))
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s := openShelf(t, db.Options{Path: dbtest.SQLite(t)})
		run(t, s, s)
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		at := dbtest.Postgres(t)
		s := openShelf(t, db.Options{URL: at})
		run(t, s, s)
	})
	t.Run("two processes", func(t *testing.T) {
		t.Parallel()
		at := dbtest.Postgres(t)
		run(t, openShelf(t, db.Options{URL: at}), openShelf(t, db.Options{URL: at}))
	})
}

// While contents are dropped one after the other, not every search reads all live contents. A
// search finds only live ones nevertheless. If too many nearer ones are gone, it reads all live
// contents.
func TestDropsOneAfterTheOther(t *testing.T) {
	query, other := []float32{1, 0, 0, 0}, []float32{-1, 0, 0, 0} // whose code is the farthest
	run := func(t *testing.T, shelf shelf) {
		s := New(Options{Store: shelf.Documents})
		s.indexes.dropEvery = time.Hour
		search := func(want string) {
			t.Helper()
			found, err := s.Search(t.Context(), "default", forebay.SearchRequest{Mode: forebay.SearchVector, Vector: query, Limit: 1})
			if err != nil || len(found.Items) != 1 || found.Items[0].Text != want {
				t.Fatalf("found %+v, want %s: %v", found.Items, want, err)
			}
		}
		drop := func(document string) {
			t.Helper()
			_, err := shelf.Documents.DeleteDocument(t.Context(), shelf.tenant, document, audit.Act{})
			shelf.check(err)
		}
		index := s.indexes.of(shelf.tenant)
		has := func(contents, chunks int, stale bool) {
			t.Helper()
			if len(index.went) != contents || index.index.Len() != chunks || index.stale != stale {
				t.Errorf("%d codes of %d contents are in memory, stale %t; want %d of %d, %t", index.index.Len(), len(index.went), index.stale, chunks, contents, stale)
			}
		}
		shelf.add("far", "far", 1, other)
		for _, name := range []string{"first", "second", "third"} {
			shelf.add(name, name, minCandidates+1, query)
			search(name)
			drop(name)
			search("far")
			has(1, 1, name != "first") // by itself it reads what is live for the first alone
		}
		var gone []LiveCode // contents that were dropped, and purged
		for i := range int64(5 * minCandidates) {
			gone = append(gone, LiveCode{Live: -1 - i, Chunk: -1 - i, Code: vector.Code(query)})
		}
		after := index.after
		index.add(gone)
		index.after = after
		search("far")
		has(1, 1, false)
	}
	onShelves(t, run)
}
