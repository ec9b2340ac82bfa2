package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/documents"
)

// Documents configures the document pipeline. Zero numbers mean the defaults.
type Documents struct {
	// MaxBytes limits one document; default 32 MiB.
	MaxBytes int64 `koanf:"max_bytes"`
	// ChunkTokens limits one chunk; default 400.
	ChunkTokens int `koanf:"chunk_tokens"`
	// OverlapTokens limits the tokens that neighbouring chunks share; default 60.
	OverlapTokens int `koanf:"overlap_tokens"`
	// BatchInputs limits the chunks that one call embeds; default 128.
	BatchInputs int `koanf:"batch_inputs"`
	// BatchTokens limits the tokens that one call embeds; default 60,000.
	BatchTokens int `koanf:"batch_tokens"`
	// EmbedTask turns texts into vectors; default embed.
	EmbedTask string `koanf:"embed_task"`
	// ExtractTask fills a schema from a text; default extract. With none, documents have no
	// extracted metadata.
	ExtractTask string `koanf:"extract_task"`
	// Queue is for the jobs of the pipeline; default: the default queue.
	Queue string `koanf:"queue"`
	// IndexBytes is the memory for the indexes of all tenants; default 512 MiB.
	IndexBytes int64 `koanf:"index_bytes"`
	// Sources are blob storages from which documents may be added by URL.
	Sources map[string]DocumentSource `koanf:"sources"`
}

// DocumentSource is a blob storage that is only read. In the file, a plain URL can stand for the
// section.
type DocumentSource struct {
	URL     string   `koanf:"url" short:"true"` // s3://bucket, azblob://container, file:///folder
	Tenants []string `koanf:"tenants"`          // if set, only these may add documents from it
}

// noTask disables a task of the pipeline.
const noTask = "none"

func (d Documents) withDefaults() Documents {
	d.EmbedTask, d.ExtractTask = or(d.EmbedTask, "embed"), or(d.ExtractTask, "extract")
	d.MaxBytes = or(d.MaxBytes, forebay.DefaultMaxDocumentBytes)
	d.ChunkTokens = or(d.ChunkTokens, documents.DefaultChunkTokens)
	d.OverlapTokens = or(d.OverlapTokens, min(documents.DefaultOverlapTokens, d.ChunkTokens/4))
	d.BatchInputs = or(d.BatchInputs, documents.DefaultBatchInputs)
	d.BatchTokens = or(d.BatchTokens, documents.DefaultBatchTokens)
	d.IndexBytes = or(d.IndexBytes, documents.DefaultIndexBytes)
	return d
}

func (o Options) validateDocuments(known map[string]forebay.Task, bad func(field, format string, args ...any)) {
	d := o.Documents
	switch {
	case d.MaxBytes < 1 || d.MaxBytes > 256<<20:
		bad("documents.max_bytes", "goes from 1 to %d", 256<<20)
	case d.ChunkTokens < documents.MinChunkTokens || d.ChunkTokens > documents.MaxChunkTokens:
		bad("documents.chunk_tokens", "goes from %d to %d", documents.MinChunkTokens, documents.MaxChunkTokens)
	case d.OverlapTokens < 0 || d.OverlapTokens > d.ChunkTokens/2:
		bad("documents.overlap_tokens", "goes from 1 to half of chunk_tokens")
	case d.BatchInputs < 1 || d.BatchInputs > documents.MaxBatchInputs:
		bad("documents.batch_inputs", "goes from 1 to %d", documents.MaxBatchInputs)
	case d.BatchTokens < d.ChunkTokens || d.BatchTokens > 1_000_000:
		bad("documents.batch_tokens", "goes from chunk_tokens to 1000000")
	case d.IndexBytes < 1<<20:
		bad("documents.index_bytes", "must be at least %d", 1<<20)
	}
	for i, at := range o.Deployments {
		if embed := known[d.EmbedTask]; at.EmbeddingTokens > 0 && at.EmbeddingTokens < d.ChunkTokens && o.serves(at.Name, embed.Model) {
			bad(fmt.Sprintf("deployments[%d].embedding_tokens", i), "is less than one chunk of a document has: lower documents.chunk_tokens (%d)", d.ChunkTokens)
		}
	}
	if _, ok := o.Queues[d.Queue]; d.Queue != "" && !ok {
		bad("documents.queue", "there is no queue %.80q", d.Queue)
	}
	for field, name := range map[string]string{"embed_task": d.EmbedTask, "extract_task": d.ExtractTask} {
		builtin := name == "embed" || name == "extract" // which there are if a model is there for them
		if _, ok := known[name]; !ok && !builtin && name != noTask {
			bad("documents."+field, "there is no task %.80q", name)
		}
	}
	for _, task := range documents.New(documents.Options{}).Tasks(documents.Calls{}) {
		if _, taken := known[task.Name]; taken {
			bad("tasks."+task.Name, "is a name that the document pipeline has")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Sources)) {
		if u, err := url.Parse(d.Sources[name].URL); err != nil || u.Scheme == "" || !forebay.ValidName(name) {
			bad("documents.sources."+name, "needs a name of letters and digits, and a URL such as s3://bucket")
		}
	}
}

// embeddingBatch returns the most texts and tokens for one embedding call. A job may go to any
// deployment of its model, so the smallest limits apply.
func (o Options) embeddingBatch(model string) (inputs, tokens int) {
	inputs, tokens = o.Documents.BatchInputs, o.Documents.BatchTokens
	for _, d := range o.Deployments {
		if o.serves(d.Name, model) {
			inputs, tokens = min(inputs, or(d.EmbeddingInputs, inputs)), min(tokens, or(d.EmbeddingTokens, tokens))
		}
	}
	return inputs, tokens
}

func (o Options) serves(deployment, model string) bool {
	return slices.ContainsFunc(o.Models[model].Deployments, func(d ModelDeployment) bool { return d.Name == deployment })
}

// openDocuments creates the service of documents and adds its tasks to the known ones.
func (s *Server) openDocuments(ctx context.Context, known map[string]forebay.Task) error {
	o := s.options.Documents
	options := documents.Options{
		Store: s.store.Documents, Blobs: s.blobs, Queue: o.Queue, MaxBytes: o.MaxBytes, ChunkTokens: o.ChunkTokens, OverlapTokens: o.OverlapTokens,
		IndexBytes: o.IndexBytes, Logger: s.log, Calls: s.options.documentCalls(known),
	}
	for _, name := range slices.Sorted(maps.Keys(o.Sources)) {
		source := o.Sources[name]
		bucket, err := blob.OpenSource(ctx, source.URL)
		if err != nil {
			return fieldError("documents.sources."+name, err)
		}
		s.sources = append(s.sources, bucket)
		u, err := url.Parse(source.URL)
		if err != nil {
			return fieldError("documents.sources."+name, err)
		}
		u.RawQuery = ""
		options.Sources = append(options.Sources, documents.Source{URL: u.String(), Bucket: bucket, Tenants: source.Tenants})
	}
	options.Limits = s.limits
	s.documents = documents.New(options)
	for _, task := range s.documents.Tasks(options.Calls) {
		known[task.Name] = task
	}
	return nil
}

// documentCalls returns the known tasks that the document pipeline calls.
func (o Options) documentCalls(known map[string]forebay.Task) (calls documents.Calls) {
	if task, ok := known[o.Documents.EmbedTask]; ok {
		calls.Embed = &task
		calls.BatchInputs, calls.BatchTokens = o.embeddingBatch(task.Model)
	}
	if task, ok := known[o.Documents.ExtractTask]; ok {
		calls.Extract = &task
	}
	return calls
}

func (s *Server) closeSources() (err error) {
	for _, source := range s.sources {
		err = errors.Join(err, source.Close())
	}
	return err
}
