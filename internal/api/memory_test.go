package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/memory"
)

// A large dead letter is the same JSON as the service has, and a page of large messages is whole.
func TestLargeAnswers(t *testing.T) {
	f := newFixture(t)
	input := fmt.Sprintf(`{"text":%q}`, strings.Repeat("<é>", 100<<10))
	job := f.submit(jobBody(input))
	f.settle("", forebay.Permanent("wrong", "it is wrong"))
	want, err := f.service.PeekDeadLetter(t.Context(), forebay.DefaultTenant, forebay.DefaultQueue, forebay.DeadLetters, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := forebay.EncodeJSON(want)
	if err != nil {
		t.Fatal(err)
	}
	answer := f.do("GET", "/v1/queues/default/dead-letters/"+job.ID, "")
	if got, want := into[map[string]any](t, answer, http.StatusOK), map[string]any{}; json.Unmarshal(encoded, &want) != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the answer differs: %.300s", answer.body)
	}
	if !strings.HasSuffix(string(answer.body), "}\n") || len(answer.body) != len(encoded)+1 {
		t.Errorf("the answer has %d bytes, and %d when it is encoded at once", len(answer.body), len(encoded))
	}

	into[forebay.MessageQueue](t, f.do("PUT", "/v1/queues/mail", ""), http.StatusCreated)
	for i := range 5 {
		if r := f.do("POST", "/v1/queues/mail/messages", fmt.Sprintf(`{"body":"%d%s"}`, i, strings.Repeat("m", 300<<10))); r.StatusCode != http.StatusCreated {
			t.Fatalf("%s", r.body)
		}
	}
	for _, limit := range []int{100, 3} {
		page := into[forebay.Page[forebay.Message]](t, f.do("GET", fmt.Sprintf("/v1/queues/mail/messages?limit=%d", limit), ""), http.StatusOK)
		if len(page.Items) != min(limit, 5) || (page.NextCursor != "") != (limit < 5) {
			t.Errorf("%d of 5 messages with limit %d, and the cursor %q", len(page.Items), limit, page.NextCursor)
		}
	}
}

// A large input that is read for an answer is counted before it is read.
func TestPayloadsAreCounted(t *testing.T) {
	f := newFixture(t)
	input := `"` + strings.Repeat("x", 200<<10) + `"`
	job := f.submit(jobBody(input))
	f.settle("", forebay.Permanent("wrong", "it is wrong"))
	pool := memory.New(1 << 20)
	claim := pool.Claim("default")
	peeked, err := f.service.PeekDeadLetter(memory.With(t.Context(), claim), forebay.DefaultTenant, forebay.DefaultQueue, forebay.DeadLetters, job.ID)
	if err != nil || string(peeked.Input) != input {
		t.Fatalf("%d bytes of input, %v", len(peeked.Input), err)
	}
	if held := pool.Held(); held != int64(len(input)) {
		t.Errorf("%d bytes are counted for an input of %d", held, len(input))
	}
	if got := into[forebay.SetAsideJob](t, f.do("GET", "/v1/queues/default/dead-letters/"+job.ID, ""), 200); string(got.Input) != input {
		t.Errorf("%d bytes of input", len(got.Input))
	}
}
