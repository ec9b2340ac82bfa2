package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/batches"
)

// Batches is what the API needs of [batches.Service].
type Batches interface {
	Create(ctx context.Context, tenant string, q batches.Request) (b batches.Batch, existing bool, err error)
	Batch(ctx context.Context, tenant, id string) (batches.Batch, error)
	Batches(ctx context.Context, tenant, after string, limit int) (list []batches.Batch, more bool, err error)
	Cancel(ctx context.Context, tenant, id string) (batches.Batch, error)
}

// batchObject is the schema Batch of OpenAI's OpenAPI file. What is not set is left out, but for
// the metadata.
type batchObject struct {
	ID           string          `json:"id"`
	Object       string          `json:"object"`
	Endpoint     string          `json:"endpoint"`
	Model        string          `json:"model,omitempty"`
	Errors       *batchErrors    `json:"errors,omitempty"`
	InputFile    string          `json:"input_file_id"`
	Window       string          `json:"completion_window"`
	Status       batches.State   `json:"status"`
	OutputFile   string          `json:"output_file_id,omitempty"`
	ErrorFile    string          `json:"error_file_id,omitempty"`
	CreatedAt    int64           `json:"created_at"`
	InProgressAt int64           `json:"in_progress_at,omitempty"`
	ExpiresAt    int64           `json:"expires_at"`
	FinalizingAt int64           `json:"finalizing_at,omitempty"`
	CompletedAt  int64           `json:"completed_at,omitempty"`
	FailedAt     int64           `json:"failed_at,omitempty"`
	ExpiredAt    int64           `json:"expired_at,omitempty"`
	CancellingAt int64           `json:"cancelling_at,omitempty"`
	CancelledAt  int64           `json:"cancelled_at,omitempty"`
	Counts       batchCounts     `json:"request_counts"`
	Usage        json.RawMessage `json:"usage,omitempty"`
	Metadata     json.RawMessage `json:"metadata"`
}

type batchErrors struct {
	Object string          `json:"object"`
	Data   json.RawMessage `json:"data"`
}

type batchCounts struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
}

// unix is a time in seconds; 0: none.
func unix(at *time.Time) int64 {
	if at == nil {
		return 0
	}
	return at.Unix()
}

func batchView(b batches.Batch) batchObject {
	o := batchObject{
		ID: b.ID, Object: "batch", Endpoint: b.Endpoint, Model: b.Model, InputFile: b.InputFile, Window: b.Window, Status: b.State,
		OutputFile: b.OutputFile, ErrorFile: b.ErrorFile, CreatedAt: b.CreatedAt.Unix(), InProgressAt: unix(b.InProgressAt), ExpiresAt: b.ExpiresAt.Unix(),
		FinalizingAt: unix(b.FinalizingAt), CancellingAt: unix(b.CancellingAt),
		Counts: batchCounts{b.Total, b.Completed, b.Failed}, Usage: b.Usage, Metadata: b.Metadata,
	}
	if o.Metadata == nil {
		o.Metadata = json.RawMessage("null")
	}
	if b.Errors != nil {
		o.Errors = &batchErrors{"list", b.Errors}
	}
	switch at := unix(b.EndedAt); b.State {
	case batches.Completed:
		o.CompletedAt = at
	case batches.Failed:
		o.FailedAt = at
	case batches.Expired:
		o.ExpiredAt = at
	case batches.Cancelled:
		o.CancelledAt = at
	}
	return o
}

// maxBatchRequest is the longest body of a request that makes a batch.
const maxBatchRequest = 64 << 10

func (a *API) createBatch(r *api.SurfaceRequest) error {
	body, release, err := r.Body(maxBatchRequest)
	if err != nil {
		return err
	}
	defer release()
	var q batches.Request
	if err := decodeBody(body, &q); err != nil {
		return err
	}
	if q.Key, err = transfer.IdempotencyKey(r.Header); err != nil {
		return err
	}
	q.Again = repeated(r.Header)
	b, _, err := a.Batches.Create(r.Context(), r.Caller.Tenant, q)
	if err != nil {
		return err
	}
	r.Correlate(b.ID)
	return answer(r, batchView(b))
}

func (a *API) getBatch(r *api.SurfaceRequest) error {
	b, err := a.Batches.Batch(r.Context(), r.Caller.Tenant, r.PathValue("batch"))
	if err != nil {
		return noSuch(err, "batch", r.PathValue("batch"))
	}
	return answer(r, batchView(b))
}

func (a *API) listBatches(r *api.SurfaceRequest) error {
	p, err := pageOf(r, 20, batches.MaxPage)
	if err != nil {
		return err
	}
	list, more, err := a.Batches.Batches(r.Context(), r.Caller.Tenant, p.after, p.limit)
	if err != nil {
		return err
	}
	o := struct {
		Object  string        `json:"object"`
		Data    []batchObject `json:"data"`
		FirstID string        `json:"first_id,omitempty"`
		LastID  string        `json:"last_id,omitempty"`
		HasMore bool          `json:"has_more"`
	}{Object: "list", Data: make([]batchObject, len(list)), HasMore: more}
	for i, b := range list {
		o.Data[i] = batchView(b)
	}
	if len(list) > 0 {
		o.FirstID, o.LastID = list[0].ID, list[len(list)-1].ID
	}
	return answer(r, o)
}

// cancelBatch answers for a batch that has ended with 409, which SDKs would repeat.
func (a *API) cancelBatch(r *api.SurfaceRequest) error {
	b, err := a.Batches.Cancel(r.Context(), r.Caller.Tenant, r.PathValue("batch"))
	if ended, ok := errors.AsType[batches.ErrEnded](err); ok {
		return &failure{status: http.StatusConflict, kind: typeInvalid, message: ended.Error(), shouldRetry: &no}
	}
	if err != nil {
		return noSuch(err, "batch", r.PathValue("batch"))
	}
	r.Correlate(b.ID)
	return answer(r, batchView(b))
}

// decodeBody reads a JSON object into v. Members that are not known are left alone.
func decodeBody(body []byte, v any) error {
	err := json.Unmarshal(body, v)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return badRequest(wrong.Field, "invalid_type", "Invalid type for '"+wrong.Field+"'.")
	}
	if err != nil {
		return badRequest("", "", "We could not parse the JSON body of your request.")
	}
	return nil
}
