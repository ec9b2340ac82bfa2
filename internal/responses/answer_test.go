package responses

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/payload"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// answering is a provider of chat completions that answers with this, in pieces.
type answering string

func (a answering) Forward(_ context.Context, name string, req model.ForwardRequest) (model.ForwardResponse, *model.Deployment, error) {
	chosen, err := req.Chosen(model.Dialect{})
	if err != nil {
		return model.ForwardResponse{}, nil, err
	}
	if chosen.Path != "chat/completions" || !strings.Contains(string(chosen.Body), `"content":"hello"`) {
		return model.ForwardResponse{}, nil, errors.New(string(chosen.Body))
	}
	err = req.Begin(http.StatusOK, http.Header{})
	for _, part := range []string{string(a[:10]), string(a[10:])} {
		if err == nil {
			err = req.Write([]byte(part))
		}
	}
	return model.ForwardResponse{Status: http.StatusOK}, &model.Deployment{Name: name}, err
}

const chatAnswer answering = `{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

// One call answers a request whole, and the response can be gone on from.
func TestAnswer(t *testing.T) {
	t.Parallel()
	m := newMaker(t, fixture.Serving(t, dbtest.Databases["sqlite"](t)))
	s := New(Options{Store: m.Responses, Payloads: payload.New(payload.Options{}), MaxBody: 1 << 20})
	object, _, called, err := s.Answer(t.Context(), chatAnswer, Call{Tenant: "acme", Model: "chat", Body: []byte(`{"input":"hello"}`)})
	if err != nil || called.Name != "chat" {
		t.Fatal(err)
	}
	var o struct{ ID, Status string }
	if err := json.Unmarshal(object, &o); err != nil || o.Status != bridge.StatusCompleted {
		t.Fatalf("%s %v", object, err)
	}
	if row := m.read(o.ID); row.Seq != 0 || string(row.Object.Inline) != string(object) {
		t.Errorf("%+v", row)
	}
	if _, _, _, err := s.Answer(t.Context(), chatAnswer, Call{Tenant: "acme", Model: "chat", Body: []byte(`{"input":"hello","previous_response_id":"` + o.ID + `","store":false}`)}); err != nil {
		t.Error(err)
	}
	for _, body := range []string{`{}`, `{"input":"hello","stream":true}`, `{"input":"hello","background":true}`, `{"input":"x","previous_response_id":"resp_none"}`, `{"input":"hello","tools":[{"type":"web_search"}]}`} {
		if _, _, _, err := s.Answer(t.Context(), chatAnswer, Call{Tenant: "acme", Model: "chat", Body: []byte(body)}); !refusal(err) {
			t.Errorf("%s: %v", body, err)
		}
	}
	_, _, _, err = s.Answer(t.Context(), answering(`{"choices":[]}     `), Call{Tenant: "acme", Model: "chat", Body: []byte(`{"input":"hello"}`)})
	if task := forebay.AsTaskError(err); task.Class != forebay.ClassTransient || task.Code != model.CodeMalformedResponse {
		t.Error(err)
	}
}

// Many small references to one large item do not make a request that no memory has room for.
func TestReferencesAreBounded(t *testing.T) {
	t.Parallel()
	m := newMaker(t, fixture.Serving(t, dbtest.Databases["sqlite"](t)))
	s := New(Options{Store: m.Responses, Payloads: payload.New(payload.Options{}), MaxBody: 128 << 10})
	ask := func(input string) (json.RawMessage, error) {
		object, _, _, err := s.Answer(t.Context(), chatAnswer, Call{Tenant: "acme", Model: "chat", Body: []byte(`{"input":` + input + `}`)})
		return object, err
	}
	const hello = `{"role":"user","content":"hello"}`
	object, err := ask(`[` + hello + `,{"role":"user","content":"` + strings.Repeat("x", 40<<10) + `"}]`)
	m.check(err)
	var o struct{ ID string }
	m.check(json.Unmarshal(object, &o))
	reference := `,{"type":"item_reference","id":"msg_` + strings.TrimPrefix(o.ID, bridge.IDPrefix) + `i0001"}`
	if _, err = ask(`[` + hello + strings.Repeat(reference, 3) + `]`); err != nil {
		t.Errorf("%.200v", err)
	}
	if _, err = ask(`[` + hello + strings.Repeat(reference, 4) + `]`); err != errTooLarge {
		t.Errorf("%.200v", err)
	}
}

// The context that goes before a request counts in its memory, also where it lies in the database.
// A job for which there is no room waits, and that costs no attempt.
func TestContextClaimsMemory(t *testing.T) {
	t.Parallel()
	m := newMaker(t, fixture.Serving(t, dbtest.Databases["sqlite"](t)))
	s := New(Options{Store: m.Responses, Payloads: payload.New(payload.Options{}), MaxBody: 1 << 20})
	first, _, _, err := s.Answer(t.Context(), chatAnswer, Call{Tenant: "acme", Model: "chat",
		Body: []byte(`{"input":[{"role":"user","content":"hello"},{"role":"user","content":"` + strings.Repeat("x", 50<<10) + `"}]}`)})
	m.check(err)
	var o struct{ ID string }
	m.check(json.Unmarshal(first, &o))
	req, err := bridge.Parse([]byte(`{"input":"hello","previous_response_id":"`+o.ID+`"}`), "chat")
	m.check(err)
	claim := memory.New(1 << 20).Claim("acme")
	defer claim.Release()
	m.check(s.Complete(memory.With(t.Context(), claim), "acme", req))
	if held := claim.Held(); held < 50<<10 {
		t.Errorf("%d bytes are claimed", held)
	}
	if task := forebay.AsTaskError(failure(memory.ErrFull)); task.Class != forebay.ClassThrottled || !task.Uncalled {
		t.Errorf("%+v", task)
	}
}

// An error that is not for clients does not reach them.
func TestFailureHidesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	err := failure(&fs.PathError{Op: "read", Path: "/srv/forebay/payload", Err: errors.New("input/output error")})
	if task := forebay.AsTaskError(err); strings.Contains(task.Message, "/srv") || task.Class != forebay.ClassTransient {
		t.Errorf("%+v", task)
	}
	if task := forebay.AsTaskError(failure(context.DeadlineExceeded)); task.Code != "timeout" {
		t.Errorf("%+v", task)
	}
}

func refusal(err error) bool {
	_, ok := errors.AsType[*bridge.Error](err)
	return ok
}
