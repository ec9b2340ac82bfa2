package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/transfer"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/memory"
)

// openPayload is the action of the audit rows that tell who opened what.
const openPayload = "open-payload"

// openings remembers which openings of payloads have a row in the audit log, for a minute. So who
// opens the same thing again and again does not fill the log.
type openings struct {
	mu   sync.Mutex
	rows map[opening]time.Time
}

type opening struct{ actor, tenant, target string }

const (
	openingFor  = time.Minute
	maxOpenings = 10_000 // beyond, all are forgotten, and rows are written again
)

func (o *openings) known(it opening, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, ok := o.rows[it]
	return ok && now.Sub(at) < openingFor
}

func (o *openings) add(it opening, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rows == nil || len(o.rows) >= maxOpenings {
		o.rows = map[opening]time.Time{}
	}
	o.rows[it] = now
}

// mayOpen reports whether the caller may open results and the like. At home the scope of the route
// is enough.
func (c *call) mayOpen() bool { return !c.away() || c.caller.May(forebay.ScopePayload) }

// needOpen is for a route that shows nothing but payloads. It refuses who may not open them.
func (c *call) needOpen() error {
	if c.mayOpen() {
		return nil
	}
	return forebay.Errorf(forebay.CodeForbidden, "the payloads of another tenant need a key with the scope %s", anyOf{forebay.ScopePayload})
}

// opens has the audit log say that the caller opens payloads of another tenant. It must succeed
// before the caller gets them. At home it does nothing.
func (c *call) opens(ctx context.Context, target string) error {
	if !c.away() {
		return nil
	}
	return c.recordOpening(ctx, target)
}

func (c *call) recordOpening(ctx context.Context, target string) error {
	it, now := opening{c.actor(), c.caller.Tenant, target}, time.Now()
	if c.api.audit == nil || c.api.openings.known(it, now) {
		return nil
	}
	detail, err := json.Marshal(struct {
		KeyTenant string `json:"key_tenant"`
	}{c.home})
	if err != nil {
		return err
	}
	act := audit.Act{Tenant: it.tenant, Actor: it.actor, Action: openPayload, Target: target, Detail: string(detail)}
	if err := c.api.audit.Record(ctx, act); err != nil {
		return err
	}
	c.api.openings.add(it, now)
	return nil
}

// withhold takes the result out of a job that the caller may not open. If he may, the audit log
// says that he has.
func (c *call) withhold(ctx context.Context, job *forebay.Job) error {
	if job.Status != forebay.StatusSucceeded || !c.away() {
		return nil
	}
	if !c.mayOpen() {
		job.Result, job.ResultWithheld = nil, true
		return nil
	}
	if job.Result == nil {
		return nil
	}
	return c.opens(ctx, job.ID+"/result")
}

// showMessages takes the bodies out of messages that the caller may not open. If he may, the audit
// log says that he has.
func (c *call) showMessages(ctx context.Context, entity string, messages []forebay.Message) error {
	if !c.away() || len(messages) == 0 {
		return nil
	}
	if c.mayOpen() {
		target := fmt.Sprintf("%s/messages/%d", entity, messages[0].SequenceNumber)
		if last := messages[len(messages)-1].SequenceNumber; len(messages) > 1 {
			target += "-" + strconv.FormatInt(last, 10)
		}
		return c.opens(ctx, target)
	}
	withoutBodies(messages)
	for i := range messages {
		messages[i].BodyWithheld = true
	}
	return nil
}

func withoutBodies(messages []forebay.Message) {
	for i := range messages {
		messages[i].Body, messages[i].BodyBase64, messages[i].ETag = nil, nil, "" // the tag is of the body too
	}
}

type inputQuery struct {
	JobPath
	Limit int64 `query:"limit" minimum:"1" maximum:"1048576" doc:"only about the first so many bytes, as text; default: all, as JSON"`
}

// inputBytesHeader has the size of the whole input.
const inputBytesHeader = "Forebay-Input-Bytes"

func (a jobRoutes) routeInput() {
	responses := streamed("200", "The input; with limit, its beginning as text", transfer.JSON[0], &huma.Schema{})
	responses["200"].Content["text/plain"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	responses["200"].Headers = map[string]*huma.Param{
		inputBytesHeader: {Description: "size of the whole input", Schema: &huma.Schema{Type: huma.TypeInteger}},
	}
	route(a.API, forebay.ScopePayload, huma.Operation{
		OperationID: "get-input", Method: http.MethodGet, Path: "/v1/jobs/{id}/input", Tags: []string{"jobs"}, Summary: "Read a job's input, of whatever size",
		Description: "As it was submitted, or as the redrive wrote it that changed it last. The audit log gets a row: one for a key, a job and a minute.",
		Responses:   responses,
	}, a.input)
}

func (a jobRoutes) input(ctx context.Context, c *call, in *inputQuery) (*stream, error) {
	input, size, err := a.jobs.Input(ctx, c.caller.Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	begins := in.Limit > 0 && in.Limit < size
	if begins {
		err = memory.Grow(ctx, in.Limit)
	}
	if err == nil {
		err = c.recordOpening(ctx, in.ID+"/input")
	}
	if err != nil {
		input.Close()
		return nil, err
	}
	return &stream{func(huma.Context) {
		defer input.Close()
		header := c.w.Header()
		header.Set("Content-Disposition", `attachment; filename="`+in.ID+`-input.json"`)
		header.Set(inputBytesHeader, strconv.FormatInt(size, 10))
		if begins {
			a.preview(ctx, c, input, in.Limit)
			return
		}
		a.copyOut(ctx, c, transfer.JSON[0], input, size)
	}}, nil
}

// preview writes the beginning of a payload, up to the last whole character.
func (a jobRoutes) preview(ctx context.Context, c *call, payload io.Reader, limit int64) {
	beginning := make([]byte, limit)
	if _, err := io.ReadFull(payload, beginning); err != nil {
		a.logFailure(ctx, c, err, nil)
		panic(http.ErrAbortHandler)
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = c.w.Write(wholeRunes(beginning))
}

// wholeRunes cuts off the part of a character at the end.
func wholeRunes(b []byte) []byte {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i]
			}
			return b
		}
	}
	return b
}

// copyOut writes a payload of a known size.
func (a jobRoutes) copyOut(ctx context.Context, c *call, contentType string, payload io.Reader, size int64) {
	c.w.Header().Set("Content-Type", contentType)
	c.w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return
	}
	if _, err := io.CopyN(c.w, payload, size); err != nil {
		// The status has been sent. Only a body that is too short can still show the failure.
		if ctx.Err() == nil {
			a.logFailure(ctx, c, err, nil)
		}
		panic(http.ErrAbortHandler)
	}
}
