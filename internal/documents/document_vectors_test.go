package documents

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/vector"
)

// liveDocument makes a document with these vectors live without a pipeline, and returns its
// chunks.
func liveDocument(t testing.TB, s *stores, tenant int64, id string, vectors [][]float32) (chunks []int64) {
	t.Helper()
	texts := make([]string, len(vectors))
	for n := range texts {
		texts[n] = fmt.Sprintf("chunk %d of %s", n, id)
	}
	return liveTexts(t, s, tenant, id, texts, vectors)
}

func liveTexts(t testing.TB, s *stores, tenant int64, id string, said []string, vectors [][]float32) (chunks []int64) {
	t.Helper()
	texts := splitTexts(t, s, tenant, id, said)
	for _, text := range texts {
		chunks = append(chunks, text.No)
	}
	for range 2 { // the second time nothing is left to record
		if err := embedTexts(t, s, tenant, id, texts, vectors); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := s.Documents.Live(t.Context(), tenant, chunks); err != nil || len(found) != 0 {
		t.Fatalf("what is not ready is found: %d, %v", len(found), err)
	}
	if err := s.Documents.RecordMetadata(t.Context(), Revision{ID: "rev_" + id, Tenant: tenant}, "job_"+id+"metadata", Described{}); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Documents.Live(t.Context(), tenant, chunks); err != nil || len(found) != len(chunks) {
		t.Fatalf("what is ready is not found: %d, %v", len(found), err)
	}
	return chunks
}

// splitTexts adds a document of these chunks, which are to be embedded.
func splitTexts(t testing.TB, s *stores, tenant int64, id string, said []string) []ChunkText {
	t.Helper()
	ctx := t.Context()
	split, err := s.Queues.EnsureQueue(ctx, "default")
	if err != nil {
		t.Fatal(err)
	}
	job := func(name string) jobs.NewJob {
		return jobs.NewJob{ID: "job_" + id + name, Tenant: tenant, Queue: split, Task: "document-" + name, MaxAttempts: 1, Input: []byte("{}"), InputSize: 2}
	}
	rev := Revision{ID: "rev_" + id, Tenant: tenant, Hash: []byte(id), MediaType: "text/plain", Blob: "t/1/" + id + "/content"}
	if _, err := s.Documents.AddRevision(ctx, NewRevision{Revision: rev, DocumentID: id, Split: job("split")}); err != nil {
		t.Fatal(err)
	}
	revision, err := s.Documents.RevisionOf(ctx, tenant, rev.ID)
	if err != nil {
		t.Fatal(err)
	}
	result := SplitResult{Chunks: len(said), Jobs: []DocumentJob{{Branch: BranchEmbedding, Job: job("embed")}, {Branch: BranchMetadata, Job: job("metadata")}}}
	for n, text := range said {
		result.Rest = append(result.Rest, NewChunk{Number: n, Text: text})
	}
	if err := s.Documents.BeginSplit(ctx, revision, 7); err != nil {
		t.Fatal(err)
	}
	if err := s.Documents.EndSplit(ctx, tenant, revision.No, 7, "job_"+id+"split", result); err != nil {
		t.Fatal(err)
	}
	texts, err := s.Documents.Unembedded(ctx, revision.No, 0, int64(len(said)))
	if err != nil || len(texts) != len(said) {
		t.Fatalf("%d chunks, %v", len(texts), err)
	}
	return texts
}

// embedTexts records the vectors of a document's chunks.
func embedTexts(t testing.TB, s *stores, tenant int64, id string, texts []ChunkText, vectors [][]float32) error {
	var recorded []ChunkVector
	for i, v := range vectors {
		recorded = append(recorded, ChunkVector{Chunk: texts[i].No, Vector: vector.Bytes(v), Code: vector.Code(v)})
	}
	rev, err := s.Documents.RevisionOf(t.Context(), tenant, "rev_"+id)
	if err != nil {
		return err
	}
	return s.Documents.RecordVectors(t.Context(), rev, "job_"+id+"embed", len(vectors[0]), recorded)
}

// purgeAll removes all that is left of dropped contents.
func purgeAll(t testing.TB, s *stores) {
	t.Helper()
	for more := true; more; {
		var err error
		if _, more, err = s.Documents.PurgeDocuments(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func indexAll(t testing.TB, s *stores) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.Documents.IndexVectors(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
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

// pgvector's index follows what is live, for each tenant and dimension, and takes in what was
// there before.
func TestPgvector(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	t.Parallel()
	s, err := openStores(t.Context(), db.Options{URL: pgtest.VectorDatabase(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	draw := rand.New(rand.NewPCG(1, 1))
	one, err := s.Queues.EnsureTenant(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.Queues.EnsureTenant(t.Context(), "two")
	if err != nil {
		t.Fatal(err)
	}
	before := randomVectors(draw, 120, 24)
	chunks := liveDocument(t, s, one, "before", before)
	if _, indexed, err := s.Documents.IndexedNearest(t.Context(), one, before[0], 1); err != nil || indexed != 0 {
		t.Fatalf("an index that nobody made has %d: %v", indexed, err)
	}
	v, err := s.Documents.PrepareVectors(t.Context())
	if err != nil || v.Pgvector == "" || v.Missing != "" {
		t.Fatalf("%+v, %v", v, err)
	}
	after, other := randomVectors(draw, 30, 24), randomVectors(draw, 20, 50)
	chunks = append(chunks, liveDocument(t, s, one, "after", after)...)
	others := liveDocument(t, s, two, "other", other)
	indexAll(t, s)
	for i, unit := range append(before, after...) {
		found, indexed, err := s.Documents.IndexedNearest(t.Context(), one, unit, 5)
		if err != nil || indexed != 3 || len(found) != 5 || found[0] != chunks[i] {
			t.Fatalf("chunk %d: %v of %d, %v", chunks[i], found, indexed, err)
		}
	}
	if found, _, err := s.Documents.IndexedNearest(t.Context(), two, other[3], 100); err != nil || len(found) != len(others) || found[0] != others[3] {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := s.Documents.DeleteDocument(t.Context(), one, "before", audit.Act{}); err != nil {
		t.Fatal(err)
	}
	purgeAll(t, s)
	indexAll(t, s)
	found, _, err := s.Documents.IndexedNearest(t.Context(), one, before[0], 200)
	if err != nil || len(found) != len(after) || slices.Contains(found, chunks[0]) {
		t.Errorf("%d are left, %v", len(found), err)
	}
}

// Without pgvector a server says what is missing.
func TestPgvectorMissing(t *testing.T) {
	t.Parallel()
	s, err := openStores(t.Context(), db.Options{URL: dbtest.Postgres(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	there := false
	err = s.DB.Search(t.Context(), func(c driver.Conn) (err error) {
		there, err = c.Prep("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").One(func(driver.Row) {})
		return err
	})
	v, err2 := s.Documents.PrepareVectors(t.Context())
	if err != nil || err2 != nil || there == (v.Missing != "") || there == (v.Pgvector == "") {
		t.Errorf("there: %t, %+v, %v, %v", there, v, err, err2)
	}
	if more, err := s.Documents.IndexVectors(context.WithoutCancel(t.Context())); err != nil || more {
		t.Errorf("%t, %v", more, err)
	}
}

// An index is built once there are enough vectors, from all at once, and again if building was
// interrupted. Later vectors are added to it.
func TestPgvectorMakesIndexes(t *testing.T) {
	raced.Skip(t, raced.MuchData)
	t.Parallel()
	s, err := openStores(t.Context(), db.Options{URL: pgtest.VectorDatabase(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	if _, err := s.Documents.PrepareVectors(t.Context()); err != nil {
		t.Fatal(err)
	}
	tenant := tenantOf(t, s, "one")
	draw := rand.New(rand.NewPCG(3, 3))
	index := func() (valid bool) {
		t.Helper()
		indexAll(t, s)
		err := s.DB.Search(t.Context(), func(c driver.Conn) error {
			return c.Prep("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('chunk_halfvecs_16')").Each(func(r driver.Row) error { valid = r.Int(0) != 0; return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		return valid
	}
	limit := func() (limit string) {
		t.Helper()
		err := s.DB.Search(t.Context(), func(c driver.Conn) error {
			_, err := c.Prep("SELECT current_setting('statement_timeout')").One(func(r driver.Row) { limit = r.Text(0) })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return limit
	}
	usual := limit()
	if usual == "0" {
		t.Error("statements may take for ever")
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
			if found, _, err := s.Documents.IndexedNearest(t.Context(), tenant, vectors[i], 5); err != nil || len(found) != 5 || found[0] != chunks[i] {
				t.Errorf("%s: chunk %d: %v, %v", wanted, chunks[i], found, err)
			}
		}
		if n == 0 { // as one that was interrupted
			err := s.DB.Search(t.Context(), func(c driver.Conn) error {
				return c.Prep("UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass('chunk_halfvecs_16')").Exec()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 8 { // searches take turns with the connections, of which there are fewer
		if limit := limit(); limit != usual {
			t.Errorf("a connection is left with a limit of %s, not %s", limit, usual)
		}
	}
}

// withPgvector is a store on an empty PostgreSQL that has pgvector, which the store makes use of.
func withPgvector(t *testing.T) *stores {
	t.Helper()
	s, err := openStores(t.Context(), db.Options{URL: pgtest.VectorDatabase(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.DB.Close() })
	if v, err := s.Documents.PrepareVectors(t.Context()); err != nil || v.Pgvector == "" {
		t.Fatalf("%+v, %v", v, err)
	}
	return s
}

// Vectors of another dimension are accepted once no document has vectors of the former one, even
// if these are not removed yet.
func TestDimensionIsForgotten(t *testing.T) {
	fixture.WithStores(t, forgetsDimension)
	t.Run("pgvector", func(t *testing.T) {
		t.Parallel()
		forgetsDimension(t, withPgvector(t))
	})
}

func forgetsDimension(t *testing.T, s *stores) {
	const before, after = 8, 16
	draw := rand.New(rand.NewPCG(4, 4))
	tenant := tenantOf(t, s, "one")
	liveDocument(t, s, tenant, "many", randomVectors(draw, indexFrom, before))
	liveDocument(t, s, tenant, "few", randomVectors(draw, 3, before))
	indexes := func() (names []string) {
		t.Helper()
		indexAll(t, s)
		if v := s.Documents.vectors.Load(); v == nil || v.Pgvector == "" {
			return nil
		}
		err := s.DB.Search(t.Context(), func(c driver.Conn) error {
			return c.Prep("SELECT relname FROM pg_class WHERE relkind = 'i' AND relname ~ '^chunk_halfvecs_[0-9]+$'").Each(func(r driver.Row) error { names = append(names, r.Text(0)); return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	dimensions := func(when string, want int) {
		t.Helper()
		if found, err := s.Documents.Dimensions(t.Context(), tenant); err != nil || found != want {
			t.Errorf("%s: the vectors have %d dimensions, want %d: %v", when, found, want, err)
		}
	}
	if names := indexes(); names != nil && !slices.Equal(names, []string{"chunk_halfvecs_8"}) {
		t.Errorf("%v", names)
	}
	remove := func(id string) {
		t.Helper()
		if _, err := s.Documents.DeleteDocument(t.Context(), tenant, id, audit.Act{}); err != nil {
			t.Fatal(err)
		}
	}
	vectors := randomVectors(draw, 5, after)
	texts := splitTexts(t, s, tenant, "anew", []string{"a", "b", "c", "d", "e"})
	remove("many")
	if err := embedTexts(t, s, tenant, "anew", texts, vectors); forebay.CodeOf(err) != forebay.CodeDimensionsChanged {
		t.Errorf("beside a document with other vectors: %v", err)
	}
	dimensions("with one document", before)
	remove("few")
	dimensions("without documents", 0)
	for range 2 {
		if err := embedTexts(t, s, tenant, "anew", texts, vectors); err != nil {
			t.Fatalf("after all others were deleted: %v", err)
		}
	}
	late := splitTexts(t, s, tenant, "late", []string{"f"})
	if err := embedTexts(t, s, tenant, "late", late, randomVectors(draw, 1, before)); forebay.CodeOf(err) != forebay.CodeDimensionsChanged {
		t.Errorf("the dimension before, beside a document that is not live yet: %v", err)
	}
	if err := s.Documents.RecordMetadata(t.Context(), Revision{ID: "rev_anew", Tenant: tenant}, "job_anewmetadata", Described{}); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before the rest is removed", "after it"} {
		dimensions(when, after)
		if names := indexes(); len(names) != 0 {
			t.Errorf("%s: there are indexes: %v", when, names)
		}
		if codes, err := s.Documents.Codes(t.Context(), tenant, 0); err != nil || len(codes) != len(vectors) {
			t.Errorf("%s: %d codes, %v", when, len(codes), err)
		}
		found, indexed, err := s.Documents.IndexedNearest(t.Context(), tenant, vectors[0], 100)
		if err != nil || indexed != 0 && (len(found) != len(vectors) || found[0] != texts[0].No) {
			t.Errorf("%s: %v are nearest, %v", when, found, err)
		}
		purgeAll(t, s)
	}
}

// A tenant with few of the vectors gets all its candidates, even if the index gives up before it
// finds them.
func TestPgvectorFindsASmallShare(t *testing.T) {
	t.Parallel()
	s, err := openStores(t.Context(), db.Options{URL: pgtest.VectorDatabase(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	v, err := s.Documents.PrepareVectors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	draw := rand.New(rand.NewPCG(8, 8))
	const dimensions, few = 16, 10
	query := make([]float32, dimensions)
	query[0] = 1
	theirs, ours := randomVectors(draw, indexFrom, dimensions), randomVectors(draw, few, dimensions)
	for _, v := range theirs {
		v[0] = max(v[0], -v[0])
	}
	for _, v := range ours { // farther than all of theirs
		v[0] = min(v[0], -v[0])
	}
	liveDocument(t, s, tenantOf(t, s, "large"), "theirs", theirs)
	small := tenantOf(t, s, "small")
	chunks := liveDocument(t, s, small, "ours", ours)
	indexAll(t, s)
	err = s.DB.Search(t.Context(), func(c driver.Conn) error {
		// As if there were so many that the index gives up, and the planner took it.
		pg := c.Driver.(*postgres.Conn)
		if err := pg.ExecSimple("SET hnsw.max_scan_tuples = 1; SET hnsw.ef_search = 20; DROP INDEX chunk_halfvecs_tenant; SET enable_seqscan = off; SET enable_sort = off"); err != nil {
			return err
		}
		found, err := indexedNearest(c, &v, small, query, few)
		slices.Sort(found)
		if err == nil && !slices.Equal(found, chunks) {
			t.Errorf("%v are found of %v", found, chunks)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A pgvector that is too old is as none: the server says so, and does without.
func TestPgvectorTooOld(t *testing.T) {
	t.Parallel()
	s := withPgvector(t)
	for version, enough := range map[string]bool{"0.7.4": false, "0.8.0": true, "1.0": true} {
		err := s.DB.Search(t.Context(), func(c driver.Conn) error {
			return c.Prep("UPDATE pg_extension SET extversion = ? WHERE extname = 'vector'").Text(version).Exec()
		})
		v, err2 := s.Documents.PrepareVectors(t.Context())
		if err != nil || err2 != nil || (v.Pgvector != "") != enough || (v.Missing == "") != enough {
			t.Errorf("%s: %+v, %v, %v", version, v, err, err2)
		}
		if _, indexed, err := s.Documents.IndexedNearest(t.Context(), 1, []float32{1}, 1); err != nil || indexed != 0 {
			t.Errorf("%s: %d, %v", version, indexed, err)
		}
	}
}
