package documents

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/extract"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/turns"
	"github.com/forebayhq/forebay/internal/vector"
)

// The pipeline's tasks.
const (
	taskSplit    = "document-split"
	taskEmbed    = "document-embed"
	taskMetadata = "document-metadata"
)

// tasksOf are the tasks of the branches.
var tasksOf = map[string]string{BranchSplit: taskSplit, BranchEmbedding: taskEmbed, BranchMetadata: taskMetadata}

// taskInput is the input of all these tasks.
type taskInput struct {
	Revision string `json:"revision"`
	First    int64  `json:"first,omitempty"` // chunk
	Last     int64  `json:"last,omitempty"`
	Tokens   int    `json:"tokens,omitempty"` // of what is sent to a model, about
}

// describeTokens is how many tokens from the beginning of a document describe it.
const describeTokens = 1500

// Tasks returns the tasks of the pipeline's jobs, which make the given calls.
func (s *Service) Tasks(calls Calls) []forebay.Task {
	split := forebay.Task{Name: taskSplit, Description: "Splits a document into chunks.", Run: s.runSplit}
	embed := forebay.Task{Name: taskEmbed, Description: "Embeds chunks of a document.", Run: s.runEmbed}
	metadata := forebay.Task{Name: taskMetadata, Description: "Finds out what a document is about.", Run: s.runMetadata}
	calling(&embed, calls.Embed)
	calling(&metadata, calls.Extract)
	tasks := []forebay.Task{split, embed, metadata}
	for i := range tasks {
		tasks[i].Check, tasks[i].Queue = checkInput, s.Queue
	}
	return tasks
}

// calling routes a task like another one.
func calling(task, inner *forebay.Task) {
	if inner == nil {
		return
	}
	task.Model, task.Endpoint, task.RequestsPerMinute, task.MaxAttempts = inner.Model, inner.Endpoint, inner.RequestsPerMinute, inner.MaxAttempts
	if inner.Estimate != nil {
		task.Estimate = func(input json.RawMessage, _ int64) forebay.CallEstimate {
			var in taskInput
			_ = json.Unmarshal(input, &in) // checked
			return inner.Estimate(nil, int64(in.Tokens)*forebay.BytesPerToken)
		}
	}
}

func checkInput(input json.RawMessage) error {
	var in taskInput
	if json.Unmarshal(input, &in) != nil || !forebay.ValidName(in.Revision) || in.First < 0 || in.Last < in.First || in.Tokens < 0 {
		return forebay.Invalid("input", "is not what a document's pipeline submits")
	}
	return nil
}

// newJobs returns jobs of one task. Their correlation id is the revision.
func (s *Service) newJobs(ctx context.Context, tenant string, inputs []taskInput, task string) ([]jobs.NewJob, error) {
	reqs := make([]forebay.SubmitRequest, len(inputs))
	for i, in := range inputs {
		input, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		reqs[i] = forebay.SubmitRequest{Task: task, Input: input, CorrelationID: &inputs[i].Revision}
	}
	return s.jobs.NewJobs(ctx, tenant, reqs)
}

// batches returns the inputs of the jobs that embed chunks of these tokens each, beginning with
// the chunk first. Each has as many chunks as one call takes.
func (s *Service) batches(revision string, first int64, tokens []int) (list []taskInput) {
	calls := s.calls.Load()
	for i, n := range tokens {
		number, last := first+int64(i), len(list)-1
		if last < 0 || list[last].Tokens+n > calls.BatchTokens || number-list[last].First >= int64(calls.BatchInputs) {
			list = append(list, taskInput{Revision: revision, First: number})
			last++
		}
		list[last].Last = number
		list[last].Tokens += n
	}
	return list
}

// embedJobs returns the jobs that embed such chunks.
func (s *Service) embedJobs(ctx context.Context, tenant, revision string, first int64, tokens []int) ([]DocumentJob, error) {
	batches := s.batches(revision, first, tokens)
	created, err := s.newJobs(ctx, tenant, batches, taskEmbed)
	list := make([]DocumentJob, len(created))
	for i, job := range created {
		list[i] = DocumentJob{Branch: BranchEmbedding, First: batches[i].First, Last: batches[i].Last, Job: job}
	}
	return list, err
}

// again returns the jobs that repeat a failed one. They are several if one call embeds fewer
// chunks than when the document was split.
func (s *Service) again(ctx context.Context, tenant string, rev Revision, f FailedJob) ([]DocumentJob, error) {
	in := taskInput{Revision: rev.ID}
	switch f.Branch {
	case BranchEmbedding:
		tokens, err := s.Store.ChunkTokens(ctx, rev.No, f.First, f.Last)
		if err != nil {
			return nil, err
		}
		return s.embedJobs(ctx, tenant, rev.ID, f.First, tokens)
	case BranchMetadata:
		in.Tokens = describeTokens
	}
	created, err := s.newJobs(ctx, tenant, []taskInput{in}, tasksOf[f.Branch])
	if err != nil {
		return nil, err
	}
	return []DocumentJob{{Branch: f.Branch, Job: created[0]}}, nil
}

// recordFor bounds recording the result of a call that is paid for.
const recordFor = 30 * time.Second

// work is a delivery of one of the pipeline's jobs.
type work struct {
	in     taskInput
	tenant int64
	rev    Revision
}

// begin reads the revision of a job. gone: the revision no longer exists.
func (s *Service) begin(ctx context.Context, call forebay.TaskCall) (w work, gone bool, err error) {
	if err := json.Unmarshal(call.Input, &w.in); err != nil {
		return w, false, forebay.Permanent("invalid_input", "the input is not what a document's pipeline submits")
	}
	if w.tenant, err = s.Store.EnsureTenant(ctx, call.Tenant); err != nil {
		return w, false, err
	}
	w.rev, err = s.Store.RevisionOf(ctx, w.tenant, w.in.Revision)
	if forebay.CodeOf(err) == forebay.CodeGone {
		return w, true, nil
	}
	return w, false, err
}

// said returns the output of a job.
func said(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and booleans
	}
	return b
}

var outputGone = said(map[string]bool{"replaced_or_deleted": true})

// failure classifies an error. Errors of the document are permanent.
func failure(err error) error {
	var known *forebay.Error
	if !errors.As(err, &known) {
		return err
	}
	switch known.Code {
	case forebay.CodeDocumentEmpty, forebay.CodeDocumentEncrypted, forebay.CodeDocumentBroken, forebay.CodeDocumentEncoding,
		forebay.CodeDocumentTooLarge, forebay.CodeDimensionsChanged:
		return forebay.Permanent(string(known.Code), known.Message)
	}
	return &forebay.TaskError{Class: forebay.ClassTransient, Code: string(known.Code), Message: known.Message, Err: err}
}

// storeChunks is how many chunks one transaction stores.
const storeChunks = 100

func (s *Service) runSplit(ctx context.Context, call forebay.TaskCall) (res forebay.TaskResult, err error) {
	w, gone, err := s.begin(ctx, call)
	if err != nil || gone || w.rev.Split {
		return forebay.TaskResult{Output: outputGone}, err
	}
	leave, err := s.extracting.take(ctx, call.Tenant)
	if err != nil {
		return res, err
	}
	defer leave() // after the text is freed
	text, chunks, err := s.chunks(ctx, w.rev)
	if err != nil {
		return res, failure(err)
	}
	result := SplitResult{Title: text.Title, Language: text.Language, TextBytes: len(text.Body), Pages: len(text.Pages), Chunks: len(chunks)}
	for _, c := range chunks {
		result.Tokens += c.Tokens
	}
	if result.Jobs, err = s.followers(ctx, call.Tenant, w.rev, chunks); err != nil {
		return res, failure(err)
	}
	splitter := rand.Int64()
	if err = s.Store.BeginSplit(ctx, w.rev, splitter); err == nil {
		result.Rest = newChunks(text, chunks)
		for len(result.Rest) > storeChunks && err == nil {
			err = s.Store.AddChunks(ctx, w.tenant, w.rev.No, splitter, result.Rest[:storeChunks])
			result.Rest = result.Rest[storeChunks:]
		}
	}
	if err == nil {
		err = s.Store.EndSplit(ctx, w.tenant, w.rev.No, splitter, call.JobID, result)
	}
	if forebay.CodeOf(err) == forebay.CodeGone {
		return forebay.TaskResult{Output: outputGone}, nil
	}
	if err != nil {
		return res, failure(err)
	}
	return forebay.TaskResult{Output: said(map[string]int{"chunks": len(chunks), "tokens": result.Tokens})}, nil
}

// chunks reads a document and splits it.
func (s *Service) chunks(ctx context.Context, rev Revision) (extract.Text, []extract.Chunk, error) {
	content, err := s.Blobs.ReadAll(ctx, rev.Blob, rev.Size)
	if err != nil {
		return extract.Text{}, nil, err
	}
	text, err := extract.Read(ctx, extract.Source{Kind: extract.Kind(rev.MediaType), Charset: rev.Charset, Data: content})
	if err != nil {
		return text, nil, err
	}
	turn := turns.Begin(ctx)
	defer turn.End()
	count := func(text string) int { return model.EstimateTokens(turn, text) }
	chunks := extract.Chunker{MaxTokens: s.ChunkTokens, Overlap: s.OverlapTokens, Count: count}.Split(text)
	if err := ctx.Err(); err != nil { // an interrupted count is useless
		return text, nil, err
	}
	if len(chunks) > MaxChunks {
		return text, nil, forebay.Errorf(forebay.CodeDocumentTooLarge, "the document makes %d chunks; the limit is %d", len(chunks), MaxChunks)
	}
	return text, chunks, nil
}

func newChunks(text extract.Text, chunks []extract.Chunk) []NewChunk {
	list := make([]NewChunk, len(chunks))
	for i, c := range chunks {
		list[i] = NewChunk{Number: i, StartByte: c.Start, EndByte: c.End, StartChar: c.StartRune, EndChar: c.EndRune, Page: c.Page, Tokens: c.Tokens, Text: text.Body[c.Start:c.End]}
		if len(c.Headings) > 0 {
			list[i].Headings = said(c.Headings)
		}
	}
	return list
}

// followers returns the jobs that follow the split.
func (s *Service) followers(ctx context.Context, tenant string, rev Revision, chunks []extract.Chunk) (list []DocumentJob, err error) {
	if rev.KeyID != "" {
		ctx = forebay.WithBudgetKey(ctx, rev.KeyID)
	}
	tokens := make([]int, len(chunks))
	for i, c := range chunks {
		tokens[i] = c.Tokens
	}
	if list, err = s.embedJobs(ctx, tenant, rev.ID, 0, tokens); err != nil {
		return nil, err
	}
	metadata, err := s.newJobs(ctx, tenant, []taskInput{{Revision: rev.ID, Tokens: describeTokens}}, taskMetadata)
	if err != nil {
		return nil, err
	}
	return append(list, DocumentJob{Branch: BranchMetadata, Job: metadata[0]}), nil
}

func (s *Service) runEmbed(ctx context.Context, call forebay.TaskCall) (res forebay.TaskResult, err error) {
	w, gone, err := s.begin(ctx, call)
	if err != nil || gone {
		return forebay.TaskResult{Output: outputGone}, err
	}
	chunks, err := s.Store.Unembedded(ctx, w.rev.No, w.in.First, w.in.Last)
	if err != nil {
		return res, failure(err)
	}
	var vectors []ChunkVector
	dimensions := 0
	if len(chunks) > 0 {
		embed := s.calls.Load().Embed
		if embed == nil {
			return res, forebay.Permanent("no_model", "no model embeds texts any more")
		}
		texts := make([]string, len(chunks))
		for i, c := range chunks {
			texts[i] = c.Text
		}
		if call.Input, err = json.Marshal(map[string]any{"input": texts}); err != nil {
			return res, err
		}
		if res, err = embed.Run(ctx, call); err != nil {
			return res, err
		}
		if vectors, dimensions, err = vectorsOf(res.Output, chunks); err != nil {
			return res, err
		}
	}
	// The call is paid for, so its result is recorded, once, even if the lock was lost.
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	err = s.Store.RecordVectors(recording, w.rev, call.JobID, dimensions, vectors)
	switch {
	case forebay.CodeOf(err) == forebay.CodeGone:
		res.Output = outputGone
		return res, nil
	case err != nil:
		return res, failure(err)
	}
	s.wake() // it may be ready
	res.Output = said(map[string]int{"embedded": len(vectors)})
	return res, nil
}

// vectorsOf reads the vectors of chunks from the output of the embedding task.
func vectorsOf(output json.RawMessage, chunks []ChunkText) ([]ChunkVector, int, error) {
	var answer struct {
		Embeddings [][]float32 `json:"embeddings"`
	}
	malformed := func(message string) ([]ChunkVector, int, error) {
		return nil, 0, &forebay.TaskError{Class: forebay.ClassTransient, Code: model.CodeMalformedResponse, Message: message}
	}
	if json.Unmarshal(output, &answer) != nil || len(answer.Embeddings) != len(chunks) {
		return malformed("the answer has not one vector for each text")
	}
	dimensions := len(answer.Embeddings[0])
	if dimensions == 0 || dimensions > vector.MaxDimensions {
		return malformed("the answer's vectors are too long, or empty")
	}
	vectors := make([]ChunkVector, len(chunks))
	for i, v := range answer.Embeddings {
		unit, ok := vector.Unit(v)
		if !ok || len(v) != dimensions {
			return malformed("the answer has a vector of another dimension, or without direction")
		}
		vectors[i] = ChunkVector{Chunk: chunks[i].No, Vector: vector.Bytes(unit), Code: vector.Code(unit)}
	}
	return vectors, dimensions, nil
}
