package modelsim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func post(t testing.TB, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	return send(t, http.MethodPost, url, body, header...)
}

func send(t testing.TB, method, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func TestRefusals(t *testing.T) {
	one := fast(func(d *Deployment) { d.Name, d.Model = "east", "gpt-4o" })
	two := fast(func(d *Deployment) { d.Name = "west" })
	s, url := startWith(t, ServerOptions{APIKey: key, Deployments: []Deployment{one, two}}, nil)
	const chat = `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_tokens":5}`
	many := make([]string, 0, 210)
	for i := range 105 {
		many = append(many, fmt.Sprint("X-Many-", i), "x")
	}
	for i, c := range []struct {
		path, body string
		header     []string
		status     int
		want       string
	}{
		{"/v1/chat/completions", chat, []string{"Authorization", "Bearer " + key}, 200, `"model":"gpt-4o"`},
		{"/v1/chat/completions", chat, nil, 401, `"code":"invalid_api_key"`},
		{"/openai/deployments/east/chat/completions?api-version=1", chat, []string{"api-key", "wrong"}, 401, `{"error":{"code":"401","message":"Access denied`},
		{"/v1/messages", chat, []string{"x-api-key", "wrong"}, 401, `{"error":{"message":"invalid x-api-key","type":"authentication_error"}`},
		{"/v1/messages", `{"model":"nix","max_tokens":5,"messages":[{"role":"user","content":"x"}]}`, []string{"x-api-key", key, "anthropic-version", "2023-06-01"}, 404, `{"error":{"message":"model: nix","type":"not_found_error"}`},
		{"/openai/deployments/east/chat/completions", chat, []string{"api-key", key}, 404, `{"error":{"code":"404","message":"Resource not found"}}`},
		{"/openai/deployments/north/chat/completions?api-version=1", chat, []string{"api-key", key}, 404, `"code":"DeploymentNotFound"`},
		{"/v1/chat/completions", `{"model":"nix","messages":[{"role":"user","content":"x"}]}`, []string{"api-key", key}, 404, "The model `nix` does not exist"},
		{"/v1/messages", chat, []string{"x-api-key", key}, 400, "anthropic-version: header is required"},
		{"/v1/messages", `{"model":"west","messages":[{"role":"user","content":"x"}]}`, []string{"x-api-key", key, "anthropic-version", "2023-06-01"}, 400, "max_tokens: Field required"},
		{"/v1/messages/count_tokens", chat, []string{"x-api-key", "wrong"}, 401, `"type":"authentication_error"`},
		{"/v1/messages/count_tokens", chat, []string{"x-api-key", key}, 400, "anthropic-version: header is required"},
		{"/v1/messages/count_tokens", `{"model":"west"}`, []string{"x-api-key", key, "anthropic-version", "2023-06-01"}, 400, "messages: at least one message is required"},
		{"/v1/messages/count_tokens", `{"model":"nix","messages":[{"role":"user","content":"x"}]}`, []string{"x-api-key", key, "anthropic-version", "2023-06-01"}, 404, `"message":"model: nix"`},
		{"/v1/chat/completions", `{"model":"west"}`, []string{"api-key", key}, 400, `"param":"messages"`},
		{"/v1/chat/completions", `{"model":7}`, []string{"api-key", key}, 400, "'model' is of the wrong type"},
		{"/v1/chat/completions", `{`, []string{"api-key", key}, 400, "could not parse"},
		{"/v1/chat/completions", strings.Repeat("[", 100_000), []string{"api-key", key}, 400, "nested too deeply"},
		{"/v1/chat/completions", `{"n":1000,"model":"west","messages":[{"role":"user","content":"x"}]}`, []string{"api-key", key}, 400, `"param":"n"`},
		{"/v1/chat/completions", strings.Repeat(" ", maxRequestBytes+1), []string{"api-key", key}, 413, "exceeds the maximum size"},
		{"/v1/embeddings", `{"model":"west","input":[{}]}`, []string{"api-key", key}, 400, "input must hold strings"},
		{"/v1/embeddings", `{"model":"west","input":"x","dimensions":9999}`, []string{"api-key", key}, 400, `"param":"dimensions"`},
		{"/v1/completions", `{}`, nil, 404, `{"error":{"code":null,"message":"Invalid URL (POST /v1/completions)","param":null,"type":"invalid_request_error"}}`},
		{"/v1/chat/completions", chat, many, 431, "too many headers"},
	} {
		status, _, body := post(t, url+c.path, c.body, c.header...)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%d %s: %d %s; want %d with %s", i, c.path, status, clip(body, 300), c.status, c.want)
		}
	}
	if r := s.Stats(); r.Invalid != 21 || r.Deployments["east"].Calls != 1 || r.Deployments["west"].Calls != 0 {
		t.Errorf("stats %+v", r)
	}
}

func TestPlainAnswersAndModels(t *testing.T) {
	_, url := start(t, fast(nil))
	auth := []string{"Authorization", "Bearer " + key, "anthropic-version", "2023-06-01"}
	status, _, body := post(t, url+"/v1/chat/completions", `{"model":"any","messages":[{"role":"user","content":"x"}],"max_completion_tokens":40,"n":2}`, auth...)
	var chat struct {
		Choices []struct {
			Index   int
			Message struct{ Content string }
		}
		Usage struct {
			Output int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(body), &chat); err != nil || status != 200 || len(chat.Choices) != 2 || chat.Choices[1].Index != 1 || chat.Usage.Output != 2*tokensOf(chat.Choices[0].Message.Content) {
		t.Errorf("%d %s %v", status, body, err)
	}
	status, header, body := post(t, url+"/v1/messages", `{"model":"any","system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"x"}],"max_tokens":40}`, auth...)
	var message struct {
		Type    string
		Content []struct{ Text string }
		Reason  string `json:"stop_reason"`
		Usage   struct {
			Input  int `json:"input_tokens"`
			Output int `json:"output_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(body), &message); err != nil || status != 200 || message.Type != "message" || message.Reason == "" || message.Usage.Input != 8 ||
		message.Usage.Output != tokensOf(message.Content[0].Text) || !strings.HasPrefix(header.Get("request-id"), "req_") {
		t.Errorf("%d %s %v", status, body, err)
	}
	for _, without := range []string{"", `,"max_tokens":40`} {
		status, header, body = post(t, url+"/v1/messages/count_tokens", `{"model":"any","system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"x"}]`+without+`}`, auth...)
		if status != 200 || body != `{"input_tokens":8}` || !strings.HasPrefix(header.Get("request-id"), "req_") {
			t.Errorf("%d %s: not what the message has used", status, body)
		}
	}
	status, _, body = post(t, url+"/v1/embeddings", `{"model":"any","input":[[1,2,3],[4]],"encoding_format":"base64","dimensions":2}`, auth...)
	if status != 200 || strings.Count(body, `"embedding":"`) != 2 || !strings.Contains(body, `"prompt_tokens":4`) || !json.Valid([]byte(body)) {
		t.Errorf("%d %s", status, body)
	}
	for path, want := range map[string]string{"/v1/models": `"has_more":false`, "/openai/v1/models": `"object":"list"`, "/v1/models/sim": `"display_name":"sim"`, "/openai/v1/models/sim": `"object":"model"`} {
		if status, _, body := send(t, http.MethodGet, url+path, "", auth...); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, _ := send(t, http.MethodGet, url+"/v1/models/nix", "", auth...); status != 404 {
		t.Errorf("a model there is not: %d", status)
	}
}

// piped is a listener whose connections are pipes, which work in a synctest bubble.
type piped struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *piped) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// A client that reads nothing does not keep its call open for ever. A slow reader gets the whole
// answer, even if that takes longer than one write may.
func TestClientsThatReadNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(ServerOptions{AnyModel: true, Deployments: []Deployment{fast(func(d *Deployment) {
			d.OutputTokens, d.OutputSpread, d.TokensPerSecond, d.FirstToken = 1500, 0, 10, Duration(90*time.Second)
		})}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := &piped{conns: make(chan net.Conn), done: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx, l) }()
		request := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
		body := chatOf(`"stream":true,`, 2000)

		silent, server := net.Pipe()
		l.conns <- server
		fmt.Fprintf(silent, request, len(body), body)
		reader, server := net.Pipe()
		l.conns <- server
		fmt.Fprintf(reader, request, len(body), body)
		answer, err := io.ReadAll(reader) // takes four minutes of the bubble's time
		if err != nil || !strings.Contains(string(answer), "data: [DONE]") {
			t.Errorf("the reader got %d bytes, %v", len(answer), err)
		}
		if st := s.Stats().Deployments["sim"]; st.Gone != 1 || st.Answered != 1 || st.InFlight != 0 {
			t.Errorf("stats %+v", st)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		silent.Close()
		reader.Close()
	})
}

// discard is a response writer that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkHandler measures what a call costs the server, without net/http.
func BenchmarkHandler(b *testing.B) {
	s, err := NewServer(ServerOptions{AnyModel: true, Deployments: []Deployment{fast(func(d *Deployment) { d.TokensPerMinute, d.RequestsPerMinute = 0, 0 })}}, io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	for _, stream := range []bool{false, true} {
		body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s"}],"max_tokens":100,"stream":%v}`, strings.Repeat("word ", 200), stream)
		b.Run(fmt.Sprintf("stream=%v", stream), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				s.Handler().ServeHTTP(discard{http.Header{}}, r)
			}
		})
	}
}

// Calls at the same time get exactly what the quota holds, and each is counted once.
func TestManyCallsAtOnce(t *testing.T) {
	s, url := start(t, fast(func(d *Deployment) {
		d.Kind, d.TokensPerMinute, d.RequestsPerMinute = KindRolling, 100*(1+3+16), 0
		d.Faults = Script{{Errors: map[int]float64{500: 0.1, 429: 0.1}, Cut: 0.1}}
	}))
	wait := watched(t, s)
	var calls sync.WaitGroup
	statuses := make(chan int, 400)
	for range cap(statuses) {
		calls.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions",
				strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":16}`))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("api-key", key)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				statuses <- 0
				return
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				statuses <- 0
				return
			}
			statuses <- resp.StatusCode
		})
	}
	calls.Wait()
	close(statuses)
	got := map[int]int64{}
	for status := range statuses {
		got[status]++
	}
	st := wait(func(st Stats) bool { return st.InFlight == 0 })
	if st.TokensAdmitted != 2000 || st.TokensWasted != 20*(st.Errors[500]+st.Cut) || st.Cut == 0 || st.Errors[500] == 0 {
		t.Errorf("stats %+v", st)
	}
	if st.Calls != 400 || st.Answered != got[200] || st.Errors[500] != got[500] || st.Cut != got[0] ||
		st.Throttled[Tokens]+st.Throttled[throttledByScript] != got[429] || st.Answered+st.Errors[500]+st.Cut != 100 {
		t.Errorf("clients saw %v, stats %+v", got, st)
	}
}
