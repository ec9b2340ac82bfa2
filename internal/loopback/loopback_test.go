package loopback_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/loopback"
)

func start(t *testing.T, script func(loopback.Call) loopback.Reply) *loopback.Server {
	t.Helper()
	s := loopback.Start(script)
	t.Cleanup(s.Close)
	return s
}

func post(ctx context.Context, t *testing.T, url, body string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

const chat = `{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"[[a]] hi there"}]}`

func TestAnswersInOpenAIsShapes(t *testing.T) {
	s := start(t, nil)
	_, body, err := post(t.Context(), t, s.URL()+"/chat/completions", chat)
	var plain struct {
		Model   string
		Choices []struct {
			Message struct{ Content string }
		}
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		}
	}
	if err != nil || json.Unmarshal([]byte(body), &plain) != nil {
		t.Fatal(err, body)
	}
	if plain.Model != "m" || len(plain.Choices) != 1 || plain.Choices[0].Message.Content != "answer to a" || plain.Usage.Prompt != 3 || plain.Usage.Completion != 3 {
		t.Errorf("plain answer: %s", body)
	}
	resp, body, err := post(t.Context(), t, s.URL()+"/chat/completions", strings.Replace(chat, `"m"`, `"m","stream":true`, 1))
	if err != nil || resp.Header.Get("Content-Type") != "text/event-stream" || !strings.HasSuffix(body, "data: [DONE]\n\n") || strings.Count(body, `"delta":{"content"`) != 3 {
		t.Errorf("streamed answer: %v %s", err, body)
	}
	_, body, err = post(t.Context(), t, s.URL()+"/embeddings", `{"model":"m","input":["[[e]] one","two"]}`)
	if err != nil || !json.Valid([]byte(body)) || strings.Count(body, `"embedding":[`) != 2 {
		t.Errorf("embeddings: %v %s", err, body)
	}
	if s.Calls("a") != 2 || s.Calls("e") != 1 || s.Stats().Calls != 3 {
		t.Errorf("counted a %d, e %d, all %d", s.Calls("a"), s.Calls("e"), s.Stats().Calls)
	}
}

func TestScriptDecides(t *testing.T) {
	s := start(t, func(c loopback.Call) loopback.Reply {
		switch c.Number {
		case 1:
			return loopback.Reply{Status: 429, RetryAfter: 2 * time.Second}
		case 2:
			return loopback.Reply{Status: 500, Message: "nul \x00 and \xff", RetryAfter: 50 * time.Millisecond}
		case 3:
			return loopback.Reply{Text: "raw \xff\xfe", Pace: time.Millisecond}
		}
		return loopback.Reply{Body: []byte("{not json")}
	})
	for i, want := range []struct {
		status       int
		header, body string
	}{
		{429, "Retry-After=2", `"error"`},
		{500, "Retry-After-Ms=50", `nul \u0000 and ` + "\xff"},
		{200, "", "\xff\xfe"},
		{200, "", "{not json"},
	} {
		resp, body, err := post(t.Context(), t, s.URL()+"/chat/completions", chat)
		if err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(want.header, "=")
		if resp.StatusCode != want.status || !strings.Contains(body, want.body) || name != "" && resp.Header.Get(name) != value {
			t.Errorf("call %d: %d %v %q", i+1, resp.StatusCode, resp.Header, body)
		}
	}
}

func TestHangSeesTheClientGo(t *testing.T) {
	s := start(t, func(loopback.Call) loopback.Reply { return loopback.Reply{Hang: true} })
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, _, err := post(ctx, t, s.URL()+"/chat/completions", chat)
		gone <- err
	}()
	if err := s.Await(t.Context(), func(st loopback.Stats) bool { return st.InFlight == 1 }); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-gone; err == nil {
		t.Error("a hanging call was answered")
	}
	if err := s.Await(t.Context(), func(st loopback.Stats) bool { return st.Disconnects == 1 && st.InFlight == 0 }); err != nil {
		t.Fatal(err)
	}
	if peak := s.Stats().Peak; peak != 1 {
		t.Errorf("peak %d", peak)
	}
	s.ResetPeak()
	if peak := s.Stats().Peak; peak != 0 {
		t.Errorf("peak %d after the reset", peak)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Await(ended, func(loopback.Stats) bool { return false }); err == nil {
		t.Error("Await outlived its context")
	}
}

func TestBrokenRequestsAreNotCalls(t *testing.T) {
	s := start(t, nil)
	if resp, _, err := post(t.Context(), t, s.URL()+"/chat/completions", "{"); err != nil || resp.StatusCode != 400 || s.Stats().Calls != 0 {
		t.Errorf("%v %d calls", err, s.Stats().Calls)
	}
	url, err := loopback.Refused()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := post(t.Context(), t, url+"/chat/completions", chat); err == nil {
		t.Error("something listens where nothing should")
	}
}
