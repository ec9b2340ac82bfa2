package modelsim

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay/internal/model"
)

// quoted writes a JSON string, without the escapes that only HTML needs.
func quoted(s string) string {
	if plain(s) {
		return `"` + s + `"`
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // strings always encode
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// plain reports whether a JSON string holds s as it is.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

const (
	safe         = `{"hate":{"filtered":false,"severity":"safe"},"self_harm":{"filtered":false,"severity":"safe"},"sexual":{"filtered":false,"severity":"safe"},"violence":{"filtered":false,"severity":"safe"}}`
	promptFilter = `"prompt_filter_results":[{"prompt_index":0,"content_filter_results":` + safe + `}]`
)

// filter is what Azure puts into each choice, and OpenAI does not.
func (c *call) filter(results string) string {
	if c.api != azure {
		return ""
	}
	return `"content_filter_results":` + results + `,`
}

func (c *call) id(prefix string) string { return fmt.Sprintf("%s%016x%08x", prefix, c.key, c.number) }

func (c *call) usage(a answer) string {
	if c.api == anthropic {
		return fmt.Sprintf(`{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":%d,"output_tokens":%d,"service_tier":"standard"}`, c.prompt-c.cached, c.cached, a.tokens)
	}
	output := a.tokens * c.request.choices()
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"audio_tokens":0},`+
		`"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`,
		c.prompt, output, c.prompt+output, c.cached)
}

// stopReason is how Anthropic says what finished the answer.
func stopReason(finish string) string {
	if finish == "length" {
		return "max_tokens"
	}
	return "end_turn"
}

// chatBody is a whole answer.
func (c *call) chatBody(a answer) []byte {
	text := quoted(a.text)
	if c.api == anthropic {
		return []byte(`{"id":` + quoted(c.id("msg_")) + `,"type":"message","role":"assistant","model":` + quoted(c.deployment.Model) +
			`,"content":[{"type":"text","text":` + text + `}],"stop_reason":"` + stopReason(a.finish) + `","stop_sequence":null,"usage":` + c.usage(a) + `}`)
	}
	var b strings.Builder
	b.WriteString(`{"id":` + quoted(c.id("chatcmpl-")) + `,"object":"chat.completion","created":` + strconv.FormatInt(c.admission.now.Unix(), 10) +
		`,"model":` + quoted(c.deployment.Model) + `,`)
	if c.api == azure {
		b.WriteString(promptFilter + `,`)
	}
	b.WriteString(`"choices":[`)
	for i := range c.request.choices() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"index":` + strconv.Itoa(i) + `,` + c.filter(safe) + `"message":{"role":"assistant","content":` + text +
			`,"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"` + a.finish + `"}`)
	}
	b.WriteString(`],"usage":` + c.usage(a) + `,"service_tier":"default","system_fingerprint":"fp_sim"}`)
	return []byte(b.String())
}

// event is one server-sent event of Anthropic's, which have names.
func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

// chunk is one server-sent event of OpenAI's; choices and what follows them are given.
func (c *call) chunk(rest string) string {
	if c.chunkHead == "" {
		c.chunkHead = `data: {"id":"` + c.id("chatcmpl-") + `","object":"chat.completion.chunk","created":` + strconv.FormatInt(c.admission.now.Unix(), 10) +
			`,"model":` + quoted(c.deployment.Model) + `,"service_tier":"default","system_fingerprint":"fp_sim",`
	}
	return c.chunkHead + rest + "}\n\n"
}

// deltas is one chunk for each choice.
func (c *call) deltas(delta, finish, results string) string {
	tail := `,"logprobs":null,"finish_reason":` + finish + `}]`
	if c.request.StreamOptions.IncludeUsage {
		tail += `,"usage":null`
	}
	var all string
	for i := range c.request.choices() {
		all += c.chunk(`"choices":[{"index":` + strconv.Itoa(i) + `,` + c.filter(results) + `"delta":` + delta + tail)
	}
	return all
}

// firstEvents is what a stream begins with, before any text.
func (c *call) firstEvents() string {
	if c.api == anthropic {
		start := `{"type":"message_start","message":{"id":` + quoted(c.id("msg_")) + `,"type":"message","role":"assistant","model":` + quoted(c.deployment.Model) +
			`,"content":[],"stop_reason":null,"stop_sequence":null,"usage":` + c.usage(answer{tokens: 1}) + `}}`
		return event("message_start", start) +
			event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
			event("ping", `{"type":"ping"}`)
	}
	first := ""
	if c.api == azure {
		first = `data: {"choices":[],"created":0,"id":"","model":"","object":"",` + promptFilter + "}\n\n"
	}
	return first + c.deltas(`{"role":"assistant","content":"","refusal":null}`, "null", "{}")
}

func (c *call) textEvents(piece string) string {
	if c.api == anthropic {
		return event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":`+quoted(piece)+`}}`)
	}
	return c.deltas(`{"content":`+quoted(piece)+`}`, "null", safe)
}

func (c *call) lastEvents(a answer) string {
	if c.api == anthropic {
		return event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
			event("message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"%s","stop_sequence":null},"usage":{"output_tokens":%d}}`, stopReason(a.finish), a.tokens)) +
			event("message_stop", `{"type":"message_stop"}`)
	}
	last := c.deltas(`{}`, `"`+a.finish+`"`, "{}")
	if c.request.StreamOptions.IncludeUsage {
		last += c.chunk(`"choices":[],"usage":` + c.usage(a))
	}
	return last + "data: [DONE]\n\n"
}

// meetEmbed answers a call for embeddings.
func (c *call) meetEmbed(e *ending) error {
	if err := c.wait(time.Now(), 0); err != nil {
		return err
	}
	req := model.EmbedRequest{Dimensions: c.request.Dimensions}
	for _, in := range c.request.Input {
		req.Inputs = append(req.Inputs, in.text)
	}
	resp, err := c.deployment.model.Embed(c.r.Context(), req)
	if err != nil {
		return errGone // what can be wrong with a request was looked at before
	}
	body := c.embedBody(resp.Vectors)
	c.quotaHeaders(nil)
	switch e.outcome {
	case Malformed:
		return c.send(http.StatusOK, body[:len(body)/2])
	case Cut:
		c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if err := c.send(http.StatusOK, body[:len(body)/2]); err != nil {
			return err
		}
		return errBroken
	}
	return c.send(http.StatusOK, body)
}

func (c *call) embedBody(vectors [][]float32) []byte {
	b := []byte(`{"object":"list","data":[`)
	for i, v := range vectors {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"object":"embedding","index":`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, `,"embedding":`...)
		if c.request.EncodingFormat == "base64" {
			raw := make([]byte, 4*len(v))
			for j, f := range v {
				binary.LittleEndian.PutUint32(raw[4*j:], math.Float32bits(f))
			}
			b = append(append(append(b, '"'), base64.StdEncoding.EncodeToString(raw)...), '"')
		} else {
			b = append(b, '[')
			for j, f := range v {
				if j > 0 {
					b = append(b, ',')
				}
				b = strconv.AppendFloat(b, float64(f), 'g', -1, 32)
			}
			b = append(b, ']')
		}
		b = append(b, '}')
	}
	return fmt.Appendf(b, `],"model":%s,"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, quoted(c.deployment.Model), c.prompt, c.prompt)
}
