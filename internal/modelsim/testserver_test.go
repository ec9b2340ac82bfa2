package modelsim

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebayhq/forebay/internal/model"
)

func startTest(t *testing.T, decide func(Call) Reply, change ...func(*Deployment)) *TestServer {
	t.Helper()
	s := StartTest(decide, change...)
	t.Cleanup(s.Close)
	return s
}

// asked is a provider of the test server.
func asked(t *testing.T, s *TestServer) model.Provider {
	t.Helper()
	p, err := model.NewOpenAI(model.OpenAIConfig{Endpoint: s.URL(), Model: "m", APIKey: "any"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const markedChat = `{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"[[a]] hi there"}]}`

func TestCallsAreCountedByTheirMarkers(t *testing.T) {
	s := startTest(t, nil)
	p := asked(t, s)
	for range 2 {
		resp, err := p.Chat(t.Context(), say(Marked("a", "hi there"), 10))
		if err != nil || resp.Text != "answer to a" || resp.FinishReason != "stop" || resp.Usage.OutputTokens != 3 {
			t.Errorf("streamed answer: %+v, %v", resp, err)
		}
	}
	if _, _, body := post(t, s.URL()+"/chat/completions", markedChat); !strings.Contains(body, `"content":"answer to a"`) {
		t.Errorf("plain answer: %s", body)
	}
	resp, err := p.Embed(t.Context(), model.EmbedRequest{Inputs: []string{Marked("e", "one"), "two"}})
	if err != nil || len(resp.Vectors) != 2 || len(resp.Vectors[1]) != DefaultDimensions {
		t.Errorf("embeddings: %d, %v", len(resp.Vectors), err)
	}
	if st := s.Stats(); s.Calls("a") != 3 || s.Calls("e") != 1 || s.Calls("b") != 0 || st.Calls != 4 || st.PeakInFlight != 1 {
		t.Errorf("counted a %d, e %d, %+v", s.Calls("a"), s.Calls("e"), st)
	}
	began := time.Now()
	slow := startTest(t, nil, func(d *Deployment) { d.TokensPerSecond = 60 })
	if _, err := asked(t, slow).Chat(t.Context(), say("x", 10)); err != nil || time.Since(began) < 50*time.Millisecond {
		t.Errorf("an answer of 3 tokens, at 60 a second, after %v: %v", time.Since(began), err)
	}
	if status, _, _ := post(t, s.URL()+"/chat/completions", "{"); status != http.StatusBadRequest || s.Stats().Calls != 4 {
		t.Errorf("a broken request: %d, %d calls", status, s.Stats().Calls)
	}
}

func TestATestDecidesWhatCallsGet(t *testing.T) {
	long := strings.Repeat("long \x00 \"answer\" \\ \xc3\xff ", 100_000)
	s := startTest(t, func(c Call) Reply {
		switch c.Number {
		case 1:
			return Reply{Status: 429, RetryAfter: 2 * time.Second}
		case 2:
			return Reply{Status: 500, Message: "nul \x00 and \xff", RetryAfter: 50 * time.Millisecond}
		case 3:
			return Reply{Status: 400, Code: "content_filter"}
		case 4:
			return Reply{Text: "raw \xff\xfe", Delay: time.Millisecond}
		case 5:
			return Reply{Text: long}
		case 6:
			return Reply{Body: []byte{}}
		}
		return Reply{Body: []byte("{not json")}
	})
	for i, want := range []struct {
		status       int
		header, body string
	}{
		{429, "Retry-After=2", `"error"`},
		{500, "Retry-After-Ms=50", `nul \u0000 and ` + "\xff"},
		{400, "Content-Type=application/json", `"code":"content_filter"`},
		{200, "Content-Type=application/json", "\"raw \xff\xfe\""},
		{200, "", strings.Repeat(`long \u0000 \"answer\" \\ `+"\xc3\xff ", 100_000)},
		{200, "Content-Length=0", ""},
		{200, "", "{not json"},
	} {
		status, header, body := post(t, s.URL()+"/chat/completions", markedChat)
		name, value, _ := strings.Cut(want.header, "=")
		if status != want.status || !strings.Contains(body, want.body) || name != "" && header.Get(name) != value {
			t.Errorf("call %d: %d %v %.200q", i+1, status, header, body)
		}
	}
	// A provider reads the same bytes from a stream.
	s.Decide(func(Call) Reply { return Reply{Text: long} })
	if resp, err := asked(t, s).Chat(t.Context(), say("x", 10)); err != nil || resp.Text != strings.ToValidUTF8(strings.ReplaceAll(long, "\xc3\xff", "\uFFFD\uFFFD"), "") {
		t.Errorf("%d bytes of %d streamed, %v", len(resp.Text), len(long), err)
	}
}

func TestATestServerSeesItsClientGo(t *testing.T) {
	defer wantNoLeak(t, goleak.IgnoreCurrent())
	defer http.DefaultClient.CloseIdleConnections()
	s := StartTest(func(Call) Reply { return Reply{Hang: true} })
	hang := func(ctx context.Context) chan error {
		answered := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/chat/completions", strings.NewReader(markedChat))
			if err == nil {
				var resp *http.Response
				if resp, err = http.DefaultClient.Do(req); err == nil {
					resp.Body.Close()
				}
			}
			answered <- err
		}()
		if err := s.Await(t.Context(), func(st Stats) bool { return st.InFlight == 1 }); err != nil {
			t.Fatal(err)
		}
		return answered
	}
	ctx, cancel := context.WithCancel(t.Context())
	answered := hang(ctx)
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("a call that hangs got %v", err)
	}
	if err := s.Await(t.Context(), func(st Stats) bool { return st.Gone == 1 && st.InFlight == 0 }); err != nil {
		t.Fatal(err)
	}
	if err := s.Await(ctx, func(Stats) bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
	answered = hang(t.Context())
	s.Close()
	if err := <-answered; err == nil || s.Stats().InFlight != 0 || s.Stats().Gone != 2 {
		t.Errorf("closed: %v, %+v", err, s.Stats())
	}
}
