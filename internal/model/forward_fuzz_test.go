package model

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/forebayhq/forebay"
)

// FuzzForwardAnswer has a provider pass on an answer that may be anything. What the client gets of
// a success is what the endpoint sent, up to a place where it broke. No failure has credentials in
// it.
func FuzzForwardAnswer(f *testing.F) {
	const stream, object = "content-type: text/event-stream", "content-type: application/json"
	f.Add(byte(0), uint16(200), stream, []byte(frames(chunkRole, chunkHello, chunkStop, chunkUsage, "[DONE]")))
	f.Add(byte(8), uint16(200), stream, []byte("\xef\xbb\xbf: ping\r\n\r\ndata:{\"choices\":[{\"index\":1}],\r\ndata: \"a\":1}\r\n\r\ndata: [DONE]"))
	f.Add(byte(0), uint16(200), stream, []byte(frames(chunkHello, `{"error":{"message":"`+testKey+`","code":"rate_limit"}}`)))
	f.Add(byte(4), uint16(200), stream, []byte("event: e\n"+frames(`{"type":"response.created","response":{}}`, `{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error"}}}`)))
	f.Add(byte(0), uint16(200), object, []byte("\n\n "+plainAnswer))
	f.Add(byte(0), uint16(200), "", []byte(frames(chunkHello, chunkStop)))
	f.Add(byte(2), uint16(200), object, []byte(`{"data":[{"embedding":"AACAPw=="},{"embedding":[0.5,1e-3]}],"usage":{"prompt_tokens":3}}`))
	f.Add(byte(0), uint16(401), object, []byte(`{"error":{"message":"sk-test-01234567***, \u002d `+testKey+`"}}`))
	f.Fuzz(func(t *testing.T, how byte, status uint16, header string, body []byte) {
		transport := canned{status: int(status), header: parseHeader(header), body: func() io.Reader {
			if how&8 != 0 && len(body) < 4<<10 {
				return iotest.OneByteReader(bytes.NewReader(body))
			}
			return bytes.NewReader(body)
		}}
		if status < 100 || status > 599 {
			transport.status = http.StatusOK
		}
		path := []string{pathChat, pathCompletions, pathEmbeddings, pathModerations, pathResponses}[int(how&7)%5]
		// The client itself asks for the usage, so that nothing of a stream is left out.
		ask := `{"input":"x","stream_options":{"include_usage":true},"stream":true}`
		if how&16 != 0 {
			ask = `{"input":"x","encoding_format":"base64"}`
		}
		k := &taken{}
		resp, err := fuzzedProviders(t, transport)[0].(Forwarder).Forward(context.Background(), k.request(path, ask))
		if u := resp.Usage; u.InputTokens < 0 || u.OutputTokens < 0 || resp.CachedTokens < 0 {
			t.Errorf("usage %+v, %d cached", u, resp.CachedTokens)
		}
		if bytes.Contains(resp.Body, []byte(testKey)) || len(resp.Body) > maxErrorBytes {
			t.Errorf("a body of %d bytes, or with the key in it: %q", len(resp.Body), resp.Body)
		}
		passed := k.all()
		if !resp.Passed && path != pathEmbeddings && !strings.HasPrefix(string(body), strings.TrimRight(passed, "\n")) {
			t.Errorf("passed on %q of %q", passed, body)
		}
		if (transport.status < 200 || transport.status > 299) && len(k.writes) > 0 {
			t.Errorf("passed on %q of a failure", passed)
		}
		if err == nil {
			return
		}
		if task, ok := errors.AsType[*forebay.TaskError](err); !ok || strings.Contains(err.Error(), testKey) || len(task.Message) > maxMessageBytes {
			t.Errorf("an error of type %T: %v", err, err)
		}
	})
}
