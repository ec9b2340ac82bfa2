package loopback

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answer writes what one call gets.
type answer struct {
	w       http.ResponseWriter
	ctx     context.Context
	call    Call
	request request
	reply   Reply
}

// send returns an error when the client went away before all was sent.
func (a *answer) send() error {
	delay := a.reply.Delay
	if a.reply.Hang {
		delay = -1
	}
	if delay != 0 {
		if err := pause(a.ctx, delay); err != nil {
			return err
		}
	}
	if a.reply.Text == "" {
		a.reply.Text = "answer to " + a.call.Marker
	}
	switch {
	case a.reply.Status != 0:
		return a.refuse()
	case a.reply.Body != nil:
		return a.raw()
	case a.call.Embed:
		return a.embeddings()
	case a.call.Stream:
		return a.stream()
	}
	return a.plain()
}

func (a *answer) refuse() error {
	if after := a.reply.RetryAfter; after > 0 {
		if after%time.Second == 0 {
			a.w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
		} else {
			a.w.Header().Set("Retry-After-Ms", strconv.FormatInt(after.Milliseconds(), 10))
		}
	}
	a.w.Header().Set("Content-Type", "application/json")
	a.w.WriteHeader(a.reply.Status)
	return a.write(`{"error":{"message":` + quote(a.reply.Message) + `,"code":` + quote(a.reply.Code) + `}}`)
}

func (a *answer) raw() error {
	kind := "application/json"
	if a.call.Stream {
		kind = "text/event-stream"
	}
	a.w.Header().Set("Content-Type", kind)
	return a.write(string(a.reply.Body))
}

const head = `{"id":"loopback","object":%q,"created":1700000000,"model":%q,`

func (a *answer) plain() error {
	a.w.Header().Set("Content-Type", "application/json")
	return a.write(fmt.Sprintf(head, "chat.completion", a.request.Model) +
		`"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":` + quote(a.reply.Text) + `}}],` + a.usage() + `}`)
}

func (a *answer) stream() error {
	a.w.Header().Set("Content-Type", "text/event-stream")
	start := "data: " + fmt.Sprintf(head, "chat.completion.chunk", a.request.Model)
	for i, word := range strings.SplitAfter(a.reply.Text, " ") {
		if i > 0 && a.reply.Pace > 0 {
			if err := pause(a.ctx, a.reply.Pace); err != nil {
				return err
			}
		}
		if err := a.write(start + `"choices":[{"index":0,"finish_reason":null,"delta":{"content":` + quote(word) + "}}]}\n\n"); err != nil {
			return err
		}
		if a.reply.Pace > 0 {
			if err := http.NewResponseController(a.w).Flush(); err != nil {
				return err
			}
		}
	}
	return a.write(start + `"choices":[{"index":0,"finish_reason":"stop","delta":{}}]}` + "\n\n" +
		start + `"choices":[],` + a.usage() + "}\n\ndata: [DONE]\n\n")
}

func (a *answer) embeddings() error {
	a.w.Header().Set("Content-Type", "application/json")
	var b strings.Builder
	b.WriteString(`{"object":"list","model":` + quote(a.request.Model) + `,"data":[`)
	for i, input := range a.request.Input {
		if i > 0 {
			b.WriteByte(',')
		}
		h := fnv.New32a()
		h.Write([]byte(input))
		fmt.Fprintf(&b, `{"object":"embedding","index":%d,"embedding":[%d,%d,1]}`, i, h.Sum32()%1000, len(input))
	}
	b.WriteString(`],` + a.usage() + `}`)
	return a.write(b.String())
}

// usage counts words, which is as good as tokens here.
func (a *answer) usage() string {
	in, out := len(strings.Fields(a.call.Prompt)), len(strings.Fields(a.reply.Text))
	return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, in, out, in+out)
}

func (a *answer) write(s string) error {
	if _, err := a.w.Write([]byte(s)); err != nil {
		return err
	}
	if a.ctx.Err() != nil {
		return errGone
	}
	return nil
}

// quote writes a JSON string whose bytes are those of s, valid UTF-8 or not: encoding/json would
// replace what is not.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
