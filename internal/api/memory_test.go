package api_test

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/memory"
)

// A large input that is read for an answer is counted before it is read.
func TestPayloadsAreCounted(t *testing.T) {
	f := newFixture(t)
	input := `"` + strings.Repeat("x", 200<<10) + `"`
	job := f.submit(jobBody(input))
	f.settle("", forebay.Permanent("wrong", "it is wrong"))
	pool := memory.New(1 << 20)
	claim := pool.Claim("default")
	peeked, err := f.service.PeekSetAside(memory.With(t.Context(), claim), forebay.DefaultTenant, forebay.DefaultQueue, forebay.DeadLetters, job.ID)
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
