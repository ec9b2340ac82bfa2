package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/forebayhq/forebay"
)

// What the decoder of submits accepts, it reads as encoding/json does.
func FuzzSubmit(f *testing.F) {
	for _, seed := range []string{
		`{"task":"echo","input":{"a":[1,2,{"b":"\"}"}]}}`, `{"t\u0061sk":"e","input":"\\"}`, ` { "task" : "x" , "input" : -1e5 } `,
		`{}`, `{"input":[]}`, `{"metadata":{"a":"b"},"deadline":"2030-01-02T15:04:05Z","max_cost_usd":0.5,"max_total_tokens":7,"priority":null}`,
		`{"idempotency_key":"k","traceparent":"t"}`, `[`, `{"a"`, `"`, `{"input":true,"task":null}`, "\xff", `{"":1}`, `{"input":1}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Submit(data, true)
		if err != nil {
			if code := forebay.CodeOf(err); code == forebay.CodeInternal {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		var want forebay.SubmitRequest
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("%q was accepted, encoding/json says %v", data, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q was read as %+v, encoding/json has %+v", data, got, want)
		}
	})
}

// What the decoder of other bodies accepts, it reads as encoding/json does.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{`{"filter":{"job_ids":["a"]},"edit":{"input":1}}`, `{"filter":1}`, `{"x":1}`, `null`, `{} {}`, `{"rate_per_second":"a"}`,
		`{"filter":null,"edit":{"input":null,"max_attempts":3},"max":1e1}`, `{"filter":{"before":"2030-01-02T15:04:05Z","task":"\ud83d\ude00"}}`, `{"max":1,"max":2}`, `{"MAX":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Object[forebay.RedriveRequest](data)
		if err != nil {
			if forebay.CodeOf(err) == forebay.CodeInternal {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		var want forebay.RedriveRequest
		if err := json.Unmarshal(data, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q was read as %+v, encoding/json has %+v (%v)", data, got, want, err)
		}
	})
}

// Who writes a field that is not there learns which are. Of a single submit, some are headers.
func TestUnknownFields(t *testing.T) {
	_, single := Submit([]byte(`{"prompt":"hi"}`), false)
	_, line := Submit([]byte(`{"prompt":"hi"}`), true)
	_, nested := Object[forebay.RedriveRequest]([]byte(`{"filter":{"jobs":["a"]}}`))
	known := "is not a known field; known are correlation_id, deadline, %sinput, max_attempts, max_cost_usd, max_total_tokens, metadata, priority, queue, scheduled_at, session_id, task%s"
	for _, c := range []struct {
		err            error
		field, message string
	}{
		{single, "prompt", fmt.Sprintf(known, "", "")},
		{line, "prompt", fmt.Sprintf(known, "idempotency_key, ", ", traceparent")},
		{nested, "filter.jobs", "is not a known field; known are after, before, correlation_id, error_class, job_ids, reason, task"},
	} {
		got, ok := errors.AsType[*forebay.Error](c.err)
		if !ok || got.Code != forebay.CodeUnknownField || got.Field != c.field || got.Message != c.message {
			t.Errorf("%v, want %s: %s", c.err, c.field, c.message)
		}
	}
}
