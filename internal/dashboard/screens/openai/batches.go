package openai

import (
	"embed"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

//go:embed templates
var templates embed.FS

var pages = kit.Parse(templates, "templates")

const (
	batchesPath   = "/batches"
	responsesPath = "/responses"
	pageSize      = "50"
)

// Routes are the pages about batches and responses.
func Routes() []kit.Route {
	return []kit.Route{
		kit.Get(batchesPath, listBatches),
		kit.Get(batchesPath+"/{id}", showBatch),
		kit.Get(batchesPath+"/{id}/files/{which}", downloadFile),
		kit.Post(batchesPath+"/{id}/cancel", cancelBatch),
		kit.Get(responsesPath, listResponses),
		kit.Get(responsesPath+"/{id}", showResponse),
		kit.Get(responsesPath+"/{id}/content", downloadResponse),
		kit.Post(responsesPath+"/{id}/cancel", cancelResponse),
		kit.Post(responsesPath+"/{id}/delete", deleteResponse),
	}
}

// apiPath is the address of a thing in the API. An id that would lead elsewhere is not found.
func apiPath(list, id string, rest ...string) (string, error) {
	if strings.Trim(id, ".") == "" {
		return "", forebay.ErrNotFound
	}
	return "/v1" + list + "/" + url.PathEscape(id) + strings.Join(rest, ""), nil
}

func pageOf(list, id string) string { return list + "/" + url.PathEscape(id) }

// times reads times as OpenAI's API has them.
type times struct{}

// Time is a time of seconds since 1970; 0: none.
func (times) Time(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// counts draws the lines of a batch.
type counts struct{}

// Bar shows how many lines were answered, have failed and are left.
func (counts) Bar(c forebay.BatchCounts) template.HTML {
	whole := float64(max(c.Total, 1))
	done, over := float64(c.Completed)/whole, float64(c.Completed+c.Failed)/whole
	spans := []kit.Span{{Kind: "wait", Label: "not yet: " + kit.Number(max(0, c.Total-c.Completed-c.Failed)), End: 1}}
	if c.Completed > 0 {
		spans = append(spans, kit.Span{Kind: "good", Label: "answered: " + kit.Number(c.Completed), End: done})
	}
	if c.Failed > 0 {
		spans = append(spans, kit.Span{Kind: "bad", Label: "failed: " + kit.Number(c.Failed), Start: done, End: over})
	}
	return kit.Timeline(fmt.Sprintf("%s answered, %s failed, of %s lines", kit.Number(c.Completed), kit.Number(c.Failed), kit.Number(c.Total)), spans)
}

type batchList struct {
	times  `json:"-"`
	counts `json:"-"`
	Data   []forebay.Batch `json:"data"`
	More   bool            `json:"has_more"`
	LastID string          `json:"last_id"`
}

// At is the page of a batch.
func (batchList) At(id string) string { return pageOf(batchesPath, id) }

// Next is where the next page begins.
func (l batchList) Next() string {
	if l.More {
		return l.LastID
	}
	return ""
}

// listBatches answers GET /batches.
func listBatches(r *kit.Request) error {
	found, err := kit.Fetch[batchList](r, "/v1/batches", kit.Values("limit", pageSize, "after", r.Query("cursor")))
	if err != nil {
		return err
	}
	return pages.Render(r, "batches", kit.Page{Title: "Batches", Section: batchesPath, Data: found, Commands: []string{"forebay batch list"}})
}

type batchData struct {
	times
	counts
	forebay.Batch
	Keys []string // of the metadata
}

// Here is the page of the batch.
func (d batchData) Here() string { return pageOf(batchesPath, d.ID) }

// Jobs is the list of the jobs of its lines.
func (d batchData) Jobs(status string) string {
	query := url.Values{"correlation_id": {d.ID}}
	if status != "" {
		query.Set("status", status)
	}
	return "/jobs?" + query.Encode()
}

// Ended is when it ended, in seconds since 1970; 0: not yet.
func (d batchData) Ended() int64 {
	return max(d.CompletedAt, d.FailedAt, d.ExpiredAt, d.CancelledAt)
}

// Over reports whether nothing more becomes of it.
func (d batchData) Over() bool { return d.Status.Terminal() }

func fetchBatch(r *kit.Request) (b forebay.Batch, err error) {
	at, err := apiPath(batchesPath, r.PathValue("id"))
	if err != nil {
		return b, err
	}
	return kit.Fetch[forebay.Batch](r, at, nil)
}

// showBatch answers GET /batches/{id}.
func showBatch(r *kit.Request) error {
	b, err := fetchBatch(r)
	if err != nil {
		return err
	}
	d := batchData{Batch: b}
	for k := range b.Metadata {
		d.Keys = append(d.Keys, k)
	}
	slices.Sort(d.Keys)
	return pages.Render(r, "batch", kit.Page{Title: "Batch " + b.ID, Section: batchesPath, Data: d, Commands: []string{
		"forebay batch show " + b.ID, "forebay batch results " + b.ID + " > answers.jsonl", "forebay batch cancel " + b.ID}})
}

// downloadFile answers GET /batches/{id}/files/{which} with the input, the output or the errors.
func downloadFile(r *kit.Request) error {
	b, err := fetchBatch(r)
	if err != nil {
		return err
	}
	which := r.PathValue("which")
	file := map[string]string{"input": b.InputFile, "output": b.OutputFile, "errors": b.ErrorFile}[which]
	if file == "" {
		return forebay.ErrNotFound
	}
	content, err := r.Client.FileContent(r.Context(), file)
	if err != nil {
		return err
	}
	defer content.Close()
	return r.AttachFrom(b.ID+"_"+which+".jsonl", content)
}

// cancelBatch answers POST /batches/{id}/cancel.
func cancelBatch(r *kit.Request) error {
	b, err := r.Client.CancelBatch(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return r.Done(pageOf(batchesPath, b.ID), "The batch is being cancelled. What was answered stays.")
}
