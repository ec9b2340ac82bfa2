package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

const pathCompact = "responses/compact"

// SealedPrefix is what the encrypted content of this server's own compactions begins with.
const SealedPrefix = "fbc1_"

// Sealed returns the encrypted content of a compaction that this server has made, or "".
func Sealed(item Object) string {
	if kindOf(item) != "compaction" {
		return ""
	}
	sealed := text(item["encrypted_content"])
	if !strings.HasPrefix(sealed, SealedPrefix) {
		return ""
	}
	return sealed
}

// Summary returns the item that a compaction stands for. It is the model's, because a model has
// written it.
func Summary(summary string) json.RawMessage {
	return encode(Object{"type": encode("message"), "role": encode("assistant"), "content": encode([]Object{
		{"type": encode("output_text"), "text": encode("Summary of the conversation so far:\n\n" + summary)}})})
}

// askSummary asks a model for a summary of what was said.
const askSummary = "Summarize the conversation so far. Your summary will stand in its place, and the work goes on from it. " +
	"Say what was asked, decided, done and found, and what is still to do. Keep names, numbers, paths and wordings that matter. " +
	"Answer with the summary only, and call no tools."

// ErrNoSummary says that the model has not written a whole summary.
var ErrNoSummary = errors.New("the model has not written a whole summary of the conversation")

// Compaction is a call that makes a conversation shorter: POST /responses/compact. It is not safe
// for concurrent use.
type Compaction struct {
	request *Request
	body    []byte
	given   []json.RawMessage // the input as it came
	id      string
	created time.Time
	native  bool
	call    *Exchange // with a provider of chat completions
	answer  []byte    // of a provider that speaks Responses
}

// ParseCompaction checks the body of a request for a compaction, as [Parse] does.
func ParseCompaction(body []byte, model string) (*Compaction, *Request, error) {
	r, err := Parse(body, model)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{"stream", "background"} {
		if raw := r.members[name]; !isNull(raw) && string(raw) != "false" {
			return nil, nil, invalid(name, "unknown_parameter", "Unknown parameter: '%s'.", name)
		}
	}
	return &Compaction{request: r, body: body, given: slices.Clone(r.Input)}, r, nil
}

// Begin returns the compaction for one attempt.
func (c Compaction) Begin(id string, created time.Time) *Compaction {
	c.id, c.created = id, created
	return &c
}

// Native returns the body that a provider gets that speaks Responses. It is the client's, unless
// that names what only this server knows.
func (c *Compaction) Native() []byte {
	r := c.request
	if r.Previous == "" && slices.EqualFunc(c.given, r.Input, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		return c.body
	}
	body := objectOf(r.Native())
	for _, name := range []string{"store", "stream"} { // this call has none
		delete(body, name)
	}
	return encode(body)
}

// Choose returns what a provider is asked for. The error is an [*Error].
func (c *Compaction) Choose(d Dialect) (path string, body []byte, err error) {
	if c.native = d.Responses; c.native {
		return pathCompact, c.Native(), nil
	}
	r := &Request{Model: c.request.Model, Context: c.request.Context, beyond: c.request.beyond,
		members: picked(c.request.members, "model", "instructions", "prompt_cache_key", "prompt_cache_retention", "service_tier")}
	r.Input = append(slices.Clone(c.request.Input), encode(Object{"role": encode("user"), "content": encode(askSummary)}))
	c.call = NewExchange(r, c.id, c.created, false, State{Sequence: 1})
	return c.call.Choose(d)
}

// Write reads a part of the answer.
func (c *Compaction) Write(b []byte) error {
	if c.native {
		c.answer = append(c.answer, b...)
		return nil
	}
	_, err := c.call.Write(b)
	return err
}

// End returns what the client gets: the provider's answer as it is, or one with the messages of
// the user and the model's summary, sealed. used is as for [Exchange.End].
func (c *Compaction) End(used forebay.TokenUsage, seal func(summary string) string) ([]byte, error) {
	if c.native {
		if objectOf(c.answer) == nil {
			return nil, ErrMalformed
		}
		return c.answer, nil
	}
	end, err := c.call.End(used, c.created)
	if err != nil {
		return nil, err
	}
	object := objectOf(end.Object)
	var summary strings.Builder
	for _, raw := range listOf(object["output"]) {
		if item := objectOf(raw); kindOf(item) == "message" {
			summary.WriteString(joined(item["content"]))
		}
	}
	if end.Status != StatusCompleted || strings.TrimSpace(summary.String()) == "" {
		return nil, ErrNoSummary
	}
	output := (&Request{Input: c.asked()}).InputItems(c.id)
	output = append(output, encode(Object{"type": encode("compaction"), "id": encode(itemID(c.id, "compaction", len(output), false)), "encrypted_content": encode(seal(summary.String()))}))
	return encode(Object{"id": encode(c.id), "object": encode("response.compaction"), "created_at": number(c.created.Unix()), "output": encode(output), "usage": object["usage"]}), nil
}

// asked returns the messages of the user, without the contents of files.
func (c *Compaction) asked() (list []json.RawMessage) {
	for _, raw := range c.request.Plain {
		if item := objectOf(raw); kindOf(item) == "message" && text(item["role"]) == "user" {
			list = append(list, raw)
		}
	}
	return list
}
