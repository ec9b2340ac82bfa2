package documents

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/vector"
)

// Parameters of searches.
const (
	minCandidates   = 400 // chunks that codes select at least, to be ordered by their vectors
	candidatesEach  = 8   // for each result that is wanted
	minDepth        = 50  // results of each kind in a hybrid search, at least
	depthEach       = 4
	reciprocalRanks = 60 // k of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)
	embedFor        = 30 * time.Second
	maxAnswerBytes  = 4 << 20 // of an answer with the vector of a query
)

// found is a chunk that a search has found.
type found struct {
	chunk           int64
	score           float64
	cosine, keyword *float64
}

// Search returns the best matching chunks of documents that are ready. If the caller gives no
// vector, a job of the tenant embeds the query.
func (s *Service) Search(ctx context.Context, tenant string, req forebay.SearchRequest) (results forebay.SearchResults, err error) {
	results.Items = []forebay.SearchResult{}
	if err := check(&req); err != nil {
		return results, err
	}
	results.Mode = req.Mode
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return results, err
	}
	depth := req.Limit
	if req.Mode == forebay.SearchHybrid {
		depth = max(minDepth, depthEach*req.Limit)
	}
	var nearest, matching []found
	if req.Mode != forebay.SearchKeyword {
		if nearest, err = s.nearest(ctx, tenant, no, req, depth); err != nil {
			return results, err
		}
	}
	if req.Mode != forebay.SearchVector {
		matches, err := s.Store.Words(ctx, no, req.Query, depth)
		if err != nil {
			return results, err
		}
		for _, m := range matches {
			matching = append(matching, found{chunk: m.Chunk, score: m.Score, keyword: &m.Score})
		}
		if matching, _, err = s.live(ctx, no, matching, depth); err != nil {
			return results, err
		}
	}
	best := nearest
	switch req.Mode {
	case forebay.SearchKeyword:
		best = matching
	case forebay.SearchHybrid:
		best = fuse(nearest, matching)
	}
	results.Items, err = s.results(ctx, no, best[:min(len(best), req.Limit)])
	return results, err
}

func check(req *forebay.SearchRequest) error {
	req.Mode = cmp.Or(req.Mode, forebay.SearchHybrid)
	req.Limit = cmp.Or(req.Limit, forebay.DefaultSearchResults)
	switch {
	case !slices.Contains([]forebay.SearchMode{forebay.SearchHybrid, forebay.SearchVector, forebay.SearchKeyword}, req.Mode):
		return forebay.Invalid("mode", "is hybrid, vector or keyword, not %.40q", string(req.Mode))
	case req.Limit < 1 || req.Limit > forebay.MaxSearchResults:
		return forebay.Invalid("limit", "goes from 1 to %d", forebay.MaxSearchResults)
	case len(req.Query) > forebay.MaxSearchQueryBytes:
		return forebay.Invalid("query", "may have at most %d bytes", forebay.MaxSearchQueryBytes)
	case short(req.Query, len(req.Query)) == "" && (req.Mode != forebay.SearchVector || len(req.Vector) == 0):
		return forebay.Invalid("query", "is required: what to look for")
	case len(req.Vector) > vector.MaxDimensions:
		return forebay.Invalid("vector", "may have at most %d numbers", vector.MaxDimensions)
	}
	return nil
}

// fuse merges two rankings by the rank of each chunk in both.
func fuse(lists ...[]found) []found {
	at := map[int64]int{}
	var all []found
	for _, list := range lists {
		for rank, f := range list {
			i, known := at[f.chunk]
			if !known {
				i = len(all)
				at[f.chunk] = i
				all = append(all, found{chunk: f.chunk})
			}
			all[i].score += 1 / float64(reciprocalRanks+rank+1)
			all[i].cosine, all[i].keyword = cmp.Or(all[i].cosine, f.cosine), cmp.Or(all[i].keyword, f.keyword)
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(b.score, a.score) })
	return all
}

// nearest returns the chunks nearest to the query, by the cosine of their vectors.
func (s *Service) nearest(ctx context.Context, tenant string, no int64, req forebay.SearchRequest, n int) ([]found, error) {
	dimensions, err := s.Store.Dimensions(ctx, no)
	if err != nil || dimensions == 0 {
		return nil, err
	}
	query := req.Vector
	if len(query) == 0 {
		if query, err = s.embedQuery(ctx, tenant, req.Query); err != nil {
			return nil, err
		}
	}
	if len(query) != dimensions {
		return nil, forebay.Errorf(forebay.CodeDimensionsChanged, "the query's vector has %d dimensions, those of the documents have %d", len(query), dimensions)
	}
	unit, ok := vector.Unit(query)
	if !ok {
		return nil, forebay.Invalid("vector", "has no direction: it is all zeros, or not finite")
	}
	const rounds = 4 // each round replaces candidates that are no longer live; then all live contents are read
	for round := 1; ; round++ {
		fresh := round > rounds
		candidates, upTo, stale, err := s.indexes.of(no).nearest(ctx, s, no, unit, max(minCandidates, candidatesEach*n), fresh)
		if err != nil {
			return nil, err
		}
		vectors, err := s.Store.Vectors(ctx, candidates)
		if err != nil {
			return nil, err
		}
		list, among := order(unit, vectors), n
		if stale {
			among = max(n, len(list)) // the dropped ones take the ranks of live ones
		}
		best, gone, err := s.live(ctx, no, list, among)
		if err != nil {
			return nil, err
		}
		best = best[:min(n, len(best))]
		for _, chunk := range candidates {
			if vectors[chunk] == nil {
				gone[chunk] = true
			}
		}
		if len(gone) == 0 || fresh {
			return best, nil
		}
		forgotten := s.indexes.of(no).forget(gone, upTo)
		if again := stale && forgotten || len(best) < n && round < rounds; !again {
			return best, nil
		}
	}
}

// live returns the first n chunks of a list that are live, and the chunks before them that are
// not.
func (s *Service) live(ctx context.Context, tenant int64, list []found, n int) (best []found, gone map[int64]bool, err error) {
	gone = map[int64]bool{}
	for len(list) > 0 && len(best) < n {
		part := list[:min(n, len(list))]
		list = list[len(part):]
		there, err := s.Store.Live(ctx, tenant, chunksOf(part))
		if err != nil {
			return nil, nil, err
		}
		for _, f := range part {
			if there[f.chunk] {
				best = append(best, f)
			} else {
				gone[f.chunk] = true
			}
		}
	}
	return best[:min(n, len(best))], gone, nil
}

func chunksOf(list []found) []int64 {
	chunks := make([]int64, len(list))
	for i, f := range list {
		chunks[i] = f.chunk
	}
	return chunks
}

// order returns chunks by the cosine of their vectors and the query.
func order(unit []float32, vectors map[int64][]byte) []found {
	list := make([]found, 0, len(vectors))
	for chunk, b := range vectors {
		if len(b) == 4*len(unit) {
			cosine := vector.Dot(unit, vector.FromBytes(b))
			list = append(list, found{chunk: chunk, score: cosine, cosine: &cosine})
		}
	}
	slices.SortFunc(list, func(a, b found) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.chunk, b.chunk)) })
	return list
}

// embedQuery embeds the query by a job of the tenant. So the tenant's quota, budget and breaker
// hold as for any other call.
func (s *Service) embedQuery(ctx context.Context, tenant, query string) ([]float32, error) {
	embed := s.calls.Load().Embed
	if embed == nil {
		return nil, forebay.Errorf(forebay.CodeNotSupported, "no model is configured that embeds the query; search by keyword")
	}
	input, err := json.Marshal(query)
	if err != nil {
		return nil, err
	}
	first, deadline := forebay.MaxPriority, s.Store.Now().Add(embedFor)
	job, _, err := s.jobs.Submit(jobs.Continuing(ctx), tenant, forebay.SubmitRequest{Task: embed.Name, Input: input, Priority: &first, Deadline: &deadline})
	if err != nil {
		return nil, err
	}
	if job, err = s.jobs.Wait(ctx, tenant, job.ID, embedFor); err != nil {
		return nil, err
	}
	switch {
	case job.Status == forebay.StatusSucceeded:
	case job.Error != nil:
		return nil, forebay.Errorf(forebay.CodeUnavailable, "the query could not be embedded: %s (job %s)", job.Error.Code, job.ID)
	default:
		return nil, forebay.Errorf(forebay.CodeUnavailable, "the query was not embedded in time (job %s)", job.ID)
	}
	r, _, err := s.jobs.Result(ctx, tenant, job.ID)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var answer struct {
		Embeddings [][]float32 `json:"embeddings"`
	}
	if err := json.NewDecoder(io.LimitReader(r, maxAnswerBytes)).Decode(&answer); err != nil || len(answer.Embeddings) != 1 {
		return nil, forebay.Errorf(forebay.CodeUnavailable, "the query was embedded into something that is no vector (job %s)", job.ID)
	}
	return answer.Embeddings[0], nil
}

// results reads the passages of a search's chunks.
func (s *Service) results(ctx context.Context, tenant int64, best []found) ([]forebay.SearchResult, error) {
	passages, err := s.Store.Passages(ctx, tenant, chunksOf(best))
	if err != nil {
		return nil, err
	}
	items := make([]forebay.SearchResult, 0, len(best))
	for _, f := range best {
		p, still := passages[f.chunk]
		if !still {
			continue // it was dropped meanwhile
		}
		items = append(items, result(f, p))
	}
	return items, nil
}

func result(f found, p Passage) forebay.SearchResult {
	r := forebay.SearchResult{
		DocumentID: p.Document, Revision: p.Revision.ID, Title: p.Revision.Title, Name: p.Revision.Name, Metadata: map[string]string{},
		Score: f.score, Cosine: f.cosine, Keyword: f.keyword, Text: p.Chunk.Text,
		Position: forebay.ChunkPosition{Chunk: p.Chunk.Number, StartByte: int64(p.Chunk.StartByte), EndByte: int64(p.Chunk.EndByte),
			StartCharacter: int64(p.Chunk.StartChar), EndCharacter: int64(p.Chunk.EndChar), Page: p.Chunk.Page, Headings: []string{}},
	}
	decodeInto(p.Revision.Metadata, &r.Metadata)
	decodeInto(p.Chunk.Headings, &r.Position.Headings)
	return r
}
