// Package documents measures how soon a document can be found, and searches over many of them.
package documents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	sdk "github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/server"
)

// exampleDocuments is where the documents come from that others are made of.
const exampleDocuments = "../examples/documents"

// prose are the paragraphs of the example documents.
func prose() (paragraphs []string, err error) {
	files, err := filepath.Glob(filepath.Join(exampleDocuments, "*"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for paragraph := range strings.SplitSeq(string(content), "\n\n") {
			if paragraph = strings.TrimSpace(paragraph); len(paragraph) > 80 && filepath.Base(name) != "README.md" {
				paragraphs = append(paragraphs, paragraph)
			}
		}
	}
	if len(paragraphs) < 100 {
		return nil, fmt.Errorf("%s has only %d paragraphs: run this in the folder bench", exampleDocuments, len(paragraphs))
	}
	return paragraphs, nil
}

// generated is a text of about so many bytes, made of paragraphs and a unique number.
func generated(draw *rand.Rand, paragraphs []string, n, size int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Document %d\n", n)
	for b.Len() < size {
		if draw.IntN(4) == 0 {
			fmt.Fprintf(&b, "\n## Part %d\n", draw.IntN(1000))
		}
		b.WriteString("\n" + paragraphs[draw.IntN(len(paragraphs))] + "\n")
	}
	return b.String()
}

const (
	documentRate = "documents/s"
	documentTime = "ms per document"
	documentCPU  = "CPU ms per document"
	documentSize = 6 << 10
	uploaders    = 8
)

// Pipelines measures documents from their upload until searches find them.
func Pipelines(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	documents := b.Size(1000, 100)
	t := measure.Table{
		Title: "Documents to searchable",
		Text: fmt.Sprintf(`%s generated documents of about %d KiB of Markdown, uploaded over HTTP by %d clients, until the last one is ready: text, chunks of
400 tokens, vectors of 384 dimensions, words, metadata. The tasks that would call models answer at once: vectors are hashes of the
words. On PostgreSQL the blobs are in a folder too.`, measure.Format(float64(documents)), documentSize>>10, uploaders),
		Columns: []string{documentRate, documentTime, documentCPU, "chunks per document", "upload p50 ms", "upload p99 ms"},
	}
	paragraphs, err := prose()
	if err != nil {
		return t, err
	}
	on, err := measure.Engines(ctx, b)
	if err != nil {
		return t, err
	}
	var contenders []measure.Contender
	for _, name := range measure.EngineNames {
		contenders = append(contenders, measure.Contender{Name: name, Round: func(ctx context.Context) (measure.Sample, error) {
			return pipelineRate(ctx, on[name], paragraphs, documents)
		}})
	}
	return t, t.TakeTurns(ctx, min(3, b.Rounds), contenders...)
}

// instantTasks are the tasks of the pipeline without a model behind them.
func instantTasks() ([]forebay.Task, error) {
	provider, err := modelsim.NewProvider(modelsim.ProviderOptions{Dimensions: searchDimensions})
	if err != nil {
		return nil, err
	}
	embed := func(ctx context.Context, call forebay.TaskCall) (res forebay.TaskResult, err error) {
		var in struct{ Input []string }
		if err := json.Unmarshal(call.Input, &in); err != nil {
			return res, err
		}
		made, err := provider.Embed(ctx, model.EmbedRequest{Inputs: in.Input})
		if err != nil {
			return res, err
		}
		res.Output, err = json.Marshal(map[string]any{"embeddings": made.Vectors})
		return res, err
	}
	extract := func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
		return forebay.TaskResult{Output: json.RawMessage(`{"title":"","language":"en","entities":[]}`)}, nil
	}
	return []forebay.Task{{Name: "embed", Run: embed}, {Name: "extract", Run: extract}}, nil
}

func pipelineRate(ctx context.Context, on measure.Engine, paragraphs []string, documents int) (s measure.Sample, err error) {
	at, err := on.Place(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.Release()) }()
	functions, err := instantTasks()
	if err != nil {
		return nil, err
	}
	srv, err := server.New(server.Options{Database: at.Database, Blob: filepath.Join(at.Dir, "blobs"), Listen: "127.0.0.1:0", Log: server.Log{Level: "error"}, Functions: functions})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	api, err := sdk.New(sdk.Options{BaseURL: "http://" + srv.Addr(ctx).String(), HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: uploaders}}})
	if err != nil {
		return nil, err
	}
	contents := make([]string, documents)
	draw := rand.New(rand.NewPCG(1, 1))
	for n := range contents {
		contents[n] = generated(draw, paragraphs, n, documentSize)
	}
	if err := onePipeline(ctx, api, "warm", contents[0]); err != nil { // vocabularies are loaded at the first use
		return nil, err
	}
	var mu sync.Mutex
	var uploads []time.Duration
	var chunks int64
	begun, cpu := time.Now(), measure.CPUTime()+on.CPU()
	err = measure.InParallel(uploaders, documents, func(n int) error {
		sent := time.Now()
		_, _, err := api.AddDocument(ctx, forebay.NewDocument{ID: fmt.Sprint("doc-", n), ContentType: "text/markdown"}, []byte(contents[n]))
		mu.Lock()
		defer mu.Unlock()
		uploads = append(uploads, time.Since(sent))
		return err
	})
	if err != nil {
		return nil, err
	}
	err = measure.InParallel(uploaders, documents, func(n int) error {
		d, err := api.WaitDocument(ctx, fmt.Sprint("doc-", n))
		if err == nil && d.Status != forebay.DocumentReady {
			err = fmt.Errorf("%s is %s: %+v", d.ID, d.Status, d.Branches)
		}
		mu.Lock()
		defer mu.Unlock()
		chunks += d.Chunks
		return err
	})
	if err != nil {
		return nil, err
	}
	took, used := time.Since(begun), measure.CPUTime()+on.CPU()-cpu
	found, err := api.Search(ctx, forebay.SearchRequest{Query: "Document 7", Mode: forebay.SearchKeyword})
	if err != nil || len(found.Items) == 0 {
		return nil, fmt.Errorf("nothing is found: %w", err)
	}
	slices.Sort(uploads)
	each := float64(documents)
	return measure.Sample{
		documentRate: each / took.Seconds(), documentTime: took.Seconds() * 1000 / each, documentCPU: used.Seconds() * 1000 / each,
		"chunks per document": float64(chunks) / each, "upload p50 ms": measure.Percentile(uploads, 0.5), "upload p99 ms": measure.Percentile(uploads, 0.99),
	}, nil
}

func onePipeline(ctx context.Context, api *sdk.Client, id, content string) error {
	if _, _, err := api.AddDocument(ctx, forebay.NewDocument{ID: id, ContentType: "text/markdown"}, []byte(content)); err != nil {
		return err
	}
	_, err := api.WaitDocument(ctx, id)
	return err
}
