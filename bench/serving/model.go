package serving

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Behaviour is what the canned model does with a call.
type Behaviour struct {
	Hang  bool // never answer
	Delay time.Duration
	Whole bool // the answer is no stream
}

// CannedModel is a model endpoint in this process that speaks chat completions. Unlike the model
// simulator it parses nothing and sends an answer encoded beforehand, so it costs as little as
// HTTP can.
type CannedModel struct {
	URL      string
	answered atomic.Int64
	Pause    atomic.Int64 // nanoseconds before each event of an answer; 0: it is sent at once
	server   *http.Server
}

// StartModel starts a model that behaves so.
func StartModel(how Behaviour) (*CannedModel, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &CannedModel{URL: "http://" + listener.Addr().String()}
	answer, contentType := streamedAnswer(), "text/event-stream"
	if how.Whole {
		answer, contentType = []byte(wholeAnswer), "application/json"
	}
	m.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if how.Hang {
			<-r.Context().Done()
			return
		}
		if how.Delay > 0 {
			time.Sleep(how.Delay)
		}
		w.Header().Set("Content-Type", contentType)
		if pause := time.Duration(m.Pause.Load()); pause > 0 {
			for event := range bytes.SplitAfterSeq(answer, []byte("\n\n")) {
				time.Sleep(pause)
				w.Write(event)
				w.(http.Flusher).Flush()
			}
		} else {
			w.Write(answer)
		}
		m.answered.Add(1)
	})}
	go m.server.Serve(listener)
	return m, nil
}

// Stop ends the model and its connections.
func (m *CannedModel) Stop() { m.server.Close() }

// wholeAnswer is a chat completion of eight tokens in one piece.
const wholeAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"canned","choices":[{"index":0,
"message":{"role":"assistant","content":"The answer of a model on this machine"},"finish_reason":"stop"}],
"usage":{"prompt_tokens":12,"completion_tokens":8,"total_tokens":20}}`

// streamedAnswer is a chat completion of eight tokens as server-sent events.
func streamedAnswer() []byte {
	var b bytes.Buffer
	event := func(choice, usage string) {
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"canned","choices":[%s],"usage":%s}`+"\n\n", choice, usage)
	}
	event(`{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}`, "null")
	for _, token := range []string{"The", " answer", " of", " a", " model", " on", " this", " machine"} {
		event(fmt.Sprintf(`{"index":0,"delta":{"content":%q},"finish_reason":null}`, token), "null")
	}
	event(`{"index":0,"delta":{},"finish_reason":"stop"}`, "null")
	event("", `{"prompt_tokens":12,"completion_tokens":8,"total_tokens":20}`)
	b.WriteString("data: [DONE]\n\n")
	return b.Bytes()
}
