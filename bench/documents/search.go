package documents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/documents"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/stores"
	"github.com/forebayhq/forebay/internal/vector"
)

const (
	searchDimensions = 384
	chunksEach       = 100 // of a document
	nearest          = 10
	searchRecall     = "recall of the 10 nearest"
	searchFirst      = "first search s"
)

// library is the chunks that searches look through, and queries with what is nearest to them.
type library struct {
	texts   []string
	vectors [][]float32
	queries []string
	wanted  [][]float32
	exact   []map[int]bool
}

// Searches measures searches over many chunks.
func Searches(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	chunks, queries := b.Size(100_000, 5_000), b.Size(500, 100)
	t := measure.Table{
		Title: "Search",
		Text: fmt.Sprintf(`%s chunks of one tenant, made of paragraphs of the example documents, in documents of %d; vectors of %d dimensions, hashes of
the words. %d queries, sentences that are partly in the chunks, one after the other, in process, without the time to embed the query;
ten results. Recall is the share of the ten nearest chunks, by all vectors, that a search by meaning returns. Indexing is what follows
after the documents are ready, by pgvector only.`, measure.Format(float64(chunks)), chunksEach, searchDimensions, queries),
		Columns: []string{"vector p50 ms", "vector p99 ms", searchRecall, "keyword p50 ms", "keyword p99 ms", "hybrid p50 ms", "hybrid p99 ms", searchFirst, "indexing s"},
	}
	lib, err := newLibrary(ctx, chunks, queries)
	if err != nil {
		return t, err
	}
	pg, err := b.Postgres(ctx)
	if err != nil {
		return t, err
	}
	withVectors, err := b.PostgresWithVectors(ctx)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, withVectors.Close()) }()
	contenders := []measure.Contender{}
	for _, c := range []struct {
		name string
		on   measure.Engine
	}{{"SQLite", b.SQLite()}, {"PostgreSQL", pg}, {"PostgreSQL with pgvector", withVectors}} {
		contenders = append(contenders, measure.Contender{Name: c.name, Round: func(ctx context.Context) (measure.Sample, error) { return lib.measure(ctx, c.on) }})
	}
	err = t.TakeTurns(ctx, 1, contenders...)
	return t, err
}

func newLibrary(ctx context.Context, chunks, queries int) (*library, error) {
	paragraphs, err := prose()
	if err != nil {
		return nil, err
	}
	var sentences []string
	for _, p := range paragraphs {
		for s := range strings.SplitSeq(p, ". ") {
			if len(s) > 30 {
				sentences = append(sentences, strings.TrimSpace(s)+".")
			}
		}
	}
	draw := rand.New(rand.NewPCG(2, 2))
	some := func(n int) string {
		picked := make([]string, n)
		for i := range picked {
			picked[i] = sentences[draw.IntN(len(sentences))]
		}
		return strings.Join(picked, " ")
	}
	lib := &library{}
	for range chunks {
		lib.texts = append(lib.texts, some(8))
	}
	for range queries {
		words := strings.Fields(some(1))
		lib.queries = append(lib.queries, strings.Join(words[:min(len(words), 12)], " "))
	}
	provider, err := modelsim.NewProvider(modelsim.ProviderOptions{Dimensions: searchDimensions})
	if err != nil {
		return nil, err
	}
	if lib.vectors, err = embedAll(ctx, provider, lib.texts); err != nil {
		return nil, err
	}
	if lib.wanted, err = embedAll(ctx, provider, lib.queries); err != nil {
		return nil, err
	}
	lib.exact = make([]map[int]bool, queries)
	return lib, measure.InParallel(measure.Workers, queries, func(q int) error {
		lib.exact[q] = lib.nearestTo(lib.wanted[q])
		return nil
	})
}

func embedAll(ctx context.Context, provider *modelsim.Provider, texts []string) (vectors [][]float32, err error) {
	for batch := range slices.Chunk(texts, 1000) {
		made, err := provider.Embed(ctx, model.EmbedRequest{Inputs: batch})
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, made.Vectors...)
	}
	return vectors, nil
}

// nearestTo compares with all vectors.
func (l *library) nearestTo(query []float32) map[int]bool {
	scores, order := make([]float64, len(l.vectors)), make([]int, len(l.vectors))
	for i, v := range l.vectors {
		scores[i], order[i] = vector.Dot(query, v), i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	best := map[int]bool{}
	for _, i := range order[:nearest] {
		best[i] = true
	}
	return best
}

func (l *library) measure(ctx context.Context, on measure.Engine) (s measure.Sample, err error) {
	at, err := on.Place(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.Release()) }()
	options := db.Options{URL: at.Database}
	if path, is := strings.CutPrefix(at.Database, "sqlite:"); is {
		options = db.Options{Path: path, Serve: true}
	}
	st, err := stores.Open(ctx, options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.DB.Close()) }()
	if _, err := st.Documents.PrepareVectors(ctx); err != nil {
		return nil, err
	}
	if err := l.fill(ctx, st); err != nil {
		return nil, err
	}
	service := documents.New(documents.Options{Store: st.Documents, Calls: documents.Calls{Embed: &forebay.Task{}}})
	begun := time.Now()
	if err := service.Index(ctx); err != nil {
		return nil, err
	}
	s = measure.Sample{"indexing s": time.Since(begun).Seconds()}
	if pg, is := on.(*measure.PostgresEngine); is {
		if err := pg.Settle(ctx, at.Database); err != nil {
			return nil, err
		}
	}
	begun = time.Now()
	if _, err := service.Search(ctx, forebay.DefaultTenant, forebay.SearchRequest{Mode: forebay.SearchVector, Vector: l.wanted[0], Limit: nearest}); err != nil {
		return nil, err
	}
	s[searchFirst] = time.Since(begun).Seconds()
	hits := 0
	for _, mode := range []forebay.SearchMode{forebay.SearchVector, forebay.SearchKeyword, forebay.SearchHybrid} {
		var took []time.Duration
		for q, query := range l.queries {
			begun := time.Now()
			found, err := service.Search(ctx, forebay.DefaultTenant, forebay.SearchRequest{Query: query, Vector: l.wanted[q], Mode: mode, Limit: nearest})
			if err != nil {
				return nil, err
			}
			took = append(took, time.Since(begun))
			for _, r := range found.Items {
				i, _ := strconv.Atoi(r.DocumentID)
				if mode == forebay.SearchVector && l.exact[q][i*chunksEach+r.Position.Chunk] {
					hits++
				}
			}
		}
		slices.Sort(took)
		s[string(mode)+" p50 ms"], s[string(mode)+" p99 ms"] = measure.Percentile(took, 0.5), measure.Percentile(took, 0.99)
	}
	s[searchRecall] = float64(hits) / float64(nearest*len(l.queries))
	return s, nil
}

// fill makes documents of the chunks, as the pipeline would, without its jobs.
func (l *library) fill(ctx context.Context, st *stores.Stores) error {
	tenant, err := st.Queues.EnsureTenant(ctx, forebay.DefaultTenant)
	if err != nil {
		return err
	}
	queue, err := st.Queues.EnsureQueue(ctx, "unused")
	if err != nil {
		return err
	}
	return measure.InParallel(4, len(l.texts)/chunksEach, func(n int) error { return l.document(ctx, st, tenant, queue, n) })
}

func (l *library) document(ctx context.Context, st *stores.Stores, tenant, queue int64, n int) error {
	id := strconv.Itoa(n)
	job := func(name string) jobs.NewJob {
		return jobs.NewJob{ID: "job_" + name + id, Tenant: tenant, Queue: queue, Task: name, MaxAttempts: 1, Input: []byte("{}"), InputSize: 2}
	}
	rev := documents.Revision{ID: "rev_" + id, Tenant: tenant, Hash: []byte(id), MediaType: "text/plain", Blob: "t/1/" + id + "/content"}
	if _, err := st.Documents.AddRevision(ctx, documents.NewRevision{Revision: rev, DocumentID: id, Split: job("split")}); err != nil {
		return err
	}
	made, err := st.Documents.RevisionOf(ctx, tenant, rev.ID)
	if err != nil {
		return err
	}
	result := documents.SplitResult{Chunks: chunksEach, Jobs: []documents.DocumentJob{{Branch: documents.BranchEmbedding, Job: job("embed")}, {Branch: documents.BranchMetadata, Job: job("metadata")}}}
	for i := range chunksEach {
		result.Rest = append(result.Rest, documents.NewChunk{Number: i, Text: l.texts[n*chunksEach+i]})
	}
	if err := st.Documents.BeginSplit(ctx, made, 1); err != nil {
		return err
	}
	if err := st.Documents.EndSplit(ctx, tenant, made.No, 1, "job_split"+id, result); err != nil {
		return err
	}
	chunks, err := st.Documents.Unembedded(ctx, made.No, 0, chunksEach)
	if err != nil {
		return err
	}
	vectors := make([]documents.ChunkVector, len(chunks))
	for i, c := range chunks {
		v := l.vectors[n*chunksEach+i]
		vectors[i] = documents.ChunkVector{Chunk: c.No, Vector: vector.Bytes(v), Code: vector.Code(v)}
	}
	if err := st.Documents.RecordVectors(ctx, made, "job_embed"+id, searchDimensions, vectors); err != nil {
		return err
	}
	return st.Documents.RecordMetadata(ctx, made, "job_metadata"+id, documents.Described{})
}
