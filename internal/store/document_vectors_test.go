package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/vector"
)

// liveDocument puts a document with these vectors straight among what is live, and returns its chunks.
func liveDocument(t testing.TB, s *Store, tenant int64, id string, vectors [][]float32) (chunks []int64) {
	t.Helper()
	texts := make([]string, len(vectors))
	for n := range texts {
		texts[n] = fmt.Sprintf("chunk %d of %s", n, id)
	}
	return liveTexts(t, s, tenant, id, texts, vectors)
}

func liveTexts(t testing.TB, s *Store, tenant int64, id string, said []string, vectors [][]float32) (chunks []int64) {
	t.Helper()
	ctx := t.Context()
	split, err := s.EnsureQueue(ctx, "default")
	if err != nil {
		t.Fatal(err)
	}
	job := func(name string) NewJob {
		return NewJob{ID: "job_" + id + name, Tenant: tenant, Queue: split, Task: "document-" + name, MaxAttempts: 1, Input: []byte("{}"), InputSize: 2}
	}
	rev := Revision{ID: "rev_" + id, Tenant: tenant, Hash: []byte(id), MediaType: "text/plain", Blob: "t/1/" + id + "/content"}
	if _, err := s.AddRevision(ctx, NewRevision{Revision: rev, DocumentID: id, Split: job("split")}); err != nil {
		t.Fatal(err)
	}
	made, err := s.RevisionOf(ctx, tenant, rev.ID)
	if err != nil {
		t.Fatal(err)
	}
	result := SplitResult{Chunks: len(vectors), Jobs: []DocumentJob{{Branch: BranchEmbedding, Job: job("embed")}, {Branch: BranchMetadata, Job: job("metadata")}}}
	for n, text := range said {
		result.Rest = append(result.Rest, NewChunk{Number: n, Text: text})
	}
	if err := s.BeginSplit(ctx, made.No, 7); err != nil {
		t.Fatal(err)
	}
	if err := s.EndSplit(ctx, tenant, made.No, 7, "job_"+id+"split", result); err != nil {
		t.Fatal(err)
	}
	texts, err := s.Unembedded(ctx, made.No, 0, int64(len(vectors)))
	if err != nil || len(texts) != len(vectors) {
		t.Fatalf("%d chunks, %v", len(texts), err)
	}
	var recorded []ChunkVector
	for i, v := range vectors {
		recorded = append(recorded, ChunkVector{Chunk: texts[i].No, Vector: vector.Bytes(v), Code: vector.Code(v)})
		chunks = append(chunks, texts[i].No)
	}
	for range 2 { // the second time nothing is left to record
		if err := s.RecordVectors(ctx, tenant, rev.ID, "job_"+id+"embed", len(vectors[0]), recorded); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := s.Live(ctx, tenant, chunks); err != nil || len(found) != 0 {
		t.Fatalf("what is not ready is found: %d, %v", len(found), err)
	}
	if err := s.RecordMetadata(ctx, tenant, rev.ID, "job_"+id+"metadata", Described{}); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Live(ctx, tenant, chunks); err != nil || len(found) != len(chunks) {
		t.Fatalf("what is ready is not found: %d, %v", len(found), err)
	}
	return chunks
}

func randomVectors(draw *rand.Rand, n, dimensions int) [][]float32 {
	vectors := make([][]float32, n)
	for i := range vectors {
		v := make([]float32, dimensions)
		for j := range v {
			v[j] = float32(draw.NormFloat64())
		}
		vectors[i], _ = vector.Unit(v)
	}
	return vectors
}

// pgvector's index follows what is live, for each tenant and dimension, and takes in what was there before.
func TestPgvector(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{URL: pgtest.VectorDatabase(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	draw := rand.New(rand.NewPCG(1, 1))
	one, err := s.EnsureTenant(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.EnsureTenant(t.Context(), "two")
	if err != nil {
		t.Fatal(err)
	}
	before := randomVectors(draw, 120, 24)
	chunks := liveDocument(t, s, one, "before", before)
	if _, indexed, err := s.IndexedNearest(t.Context(), one, before[0], 1); err != nil || indexed != 0 {
		t.Fatalf("an index that nobody made has %d: %v", indexed, err)
	}
	v, err := s.PrepareVectors(t.Context())
	if err != nil || v.Pgvector == "" || v.Missing != "" {
		t.Fatalf("%+v, %v", v, err)
	}
	after, other := randomVectors(draw, 30, 24), randomVectors(draw, 20, 50)
	chunks = append(chunks, liveDocument(t, s, one, "after", after)...)
	others := liveDocument(t, s, two, "other", other)
	index := func() {
		t.Helper()
		for more := true; more; {
			if more, err = s.IndexVectors(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	index()
	for i, unit := range append(before, after...) {
		found, indexed, err := s.IndexedNearest(t.Context(), one, unit, 5)
		if err != nil || indexed != 3 || len(found) != 5 || found[0] != chunks[i] {
			t.Fatalf("chunk %d: %v of %d, %v", chunks[i], found, indexed, err)
		}
	}
	if found, _, err := s.IndexedNearest(t.Context(), two, other[3], 100); err != nil || len(found) != len(others) || found[0] != others[3] {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := s.DeleteDocument(t.Context(), one, "before"); err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		if _, more, err = s.PurgeDocuments(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	index()
	found, _, err := s.IndexedNearest(t.Context(), one, before[0], 200)
	if err != nil || len(found) != len(after) || slices.Contains(found, chunks[0]) {
		t.Errorf("%d are left, %v", len(found), err)
	}
}

// Without pgvector a server says what is missing.
func TestPgvectorMissing(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{URL: pgtest.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	there := false
	err = s.search(t.Context(), func(c conn) (err error) {
		there, err = c.prep("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").one(func(row) {})
		return err
	})
	v, err2 := s.PrepareVectors(t.Context())
	if err != nil || err2 != nil || there == (v.Missing != "") || there == (v.Pgvector == "") {
		t.Errorf("there: %t, %+v, %v, %v", there, v, err, err2)
	}
	if more, err := s.IndexVectors(context.WithoutCancel(t.Context())); err != nil || more {
		t.Errorf("%t, %v", more, err)
	}
}

// From so many vectors on there is an index, made of all at once, and again if its making was cut off; what
// comes later is added to it.
func TestPgvectorMakesIndexes(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{URL: pgtest.VectorDatabase(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.PrepareVectors(t.Context()); err != nil {
		t.Fatal(err)
	}
	tenant := tenantOf(t, s, "one")
	draw := rand.New(rand.NewPCG(3, 3))
	index := func() (valid bool) {
		t.Helper()
		for more := true; more; {
			if more, err = s.IndexVectors(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		err := s.search(t.Context(), func(c conn) error {
			return c.prep("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('chunk_halfvecs_16')").each(func(r row) error { valid = r.int(0) != 0; return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		return valid
	}
	vectors := randomVectors(draw, indexFrom-1, 16)
	chunks := liveDocument(t, s, tenant, "many", vectors)
	if index() {
		t.Error("there is an index for few vectors")
	}
	for n, wanted := range []string{"made", "made again", "added to"} {
		more := randomVectors(draw, 5, 16)
		vectors, chunks = append(vectors, more...), append(chunks, liveDocument(t, s, tenant, fmt.Sprintf("more%d", n), more)...)
		if !index() {
			t.Errorf("the index is not %s", wanted)
		}
		for i := len(chunks) - 1; i >= 0; i -= 97 {
			if found, _, err := s.IndexedNearest(t.Context(), tenant, vectors[i], 5); err != nil || len(found) != 5 || found[0] != chunks[i] {
				t.Errorf("%s: chunk %d: %v, %v", wanted, chunks[i], found, err)
			}
		}
		if n == 0 { // as one that was interrupted
			err := s.search(t.Context(), func(c conn) error {
				return c.prep("UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass('chunk_halfvecs_16')").exec()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	var settings string
	err = s.search(t.Context(), func(c conn) error {
		_, err := c.prep("SELECT current_setting('statement_timeout')").one(func(r row) { settings = r.text(0) })
		return err
	})
	if err != nil || settings != postgresSettings["statement_timeout"] {
		t.Errorf("the connection is left with a limit of %s, %v", settings, err)
	}
}
