package modelsim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/quota"
)

const key = "sk-modelsim-0123456789"

// fast is a deployment that answers at once, changed by change.
func fast(change func(*Deployment)) Deployment {
	d := DefaultDeployment()
	d.FirstToken, d.TokensPerSecond, d.Phase = 0, 0, 0
	if change != nil {
		change(&d)
	}
	return d
}

// start serves one deployment that answers to every name, and returns its URL.
func start(t testing.TB, d Deployment) (*Server, string) {
	t.Helper()
	return startWith(t, ServerOptions{APIKey: key, AnyModel: true, Deployments: []Deployment{d}}, nil)
}

func startWith(t testing.TB, o ServerOptions, log io.Writer) (*Server, string) {
	t.Helper()
	s, err := NewServer(o, log)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		s.Close()
		h.CloseClientConnections()
		h.Close()
	})
	return s, h.URL
}

// providers are our own providers, one for each shape, for the server at url.
func providers(t testing.TB, url string) map[string]model.Provider {
	t.Helper()
	made := map[string]model.Provider{}
	add := func(name string, p model.Provider, err error) {
		if err != nil {
			t.Fatal(err)
		}
		made[name] = p
	}
	p, err := model.NewOpenAI(model.OpenAIConfig{Endpoint: url + "/v1", Model: "sim", APIKey: key})
	add("openai", p, err)
	p, err = model.NewAzure(model.AzureConfig{Endpoint: url, Deployment: "sim", APIKey: key})
	add("azure", p, err)
	p, err = model.NewAzure(model.AzureConfig{Endpoint: url, Deployment: "sim", APIVersion: "v1", APIKey: key})
	add("azure v1", p, err)
	p, err = model.NewAnthropic(model.AnthropicConfig{Endpoint: url, Model: "sim", APIKey: key})
	add("anthropic", p, err)
	return made
}

func say(text string, max int) model.ChatRequest {
	return model.ChatRequest{Messages: []model.Message{{Role: model.RoleSystem, Content: "Be brief."}, {Role: model.RoleUser, Content: text}}, MaxOutputTokens: max}
}

func TestOurProvidersUnderstandEveryShape(t *testing.T) {
	s, url := start(t, fast(nil))
	for name, p := range providers(t, url) {
		t.Run(name, func(t *testing.T) {
			s.Reset()
			req := say("What does the harbour wait for?", 50)
			req.WantRaw = true
			resp, err := p.Chat(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Model != "sim" || resp.Usage.OutputTokens != int64(tokensOf(resp.Text)) || resp.Usage.OutputTokens < 1 || resp.Usage.OutputTokens > 50 || len(resp.Raw) == 0 {
				t.Errorf("answer %+v", resp)
			}
			again, err := p.Chat(t.Context(), req)
			if err != nil || again.Text != resp.Text {
				t.Errorf("the same request got %q, then %q", resp.Text, again.Text)
			}
			st := s.Stats().Deployments["sim"]
			prompt := int64(tokensOf("Be brief.") + tokensOf("What does the harbour wait for?") + 6)
			if resp.Usage.InputTokens != prompt || st.TokensAdmitted != 2*(prompt+50) || st.Answered != 2 || st.TokensWasted != 0 || st.OutputTokens != 2*resp.Usage.OutputTokens {
				t.Errorf("usage %+v, prompt %d, stats %+v", resp.Usage, prompt, st)
			}
			if l := again.Limits; l.Tokens.Limit != 240_000 || l.Tokens.Remaining < 238_900 || l.Tokens.Remaining > 240_000-2*(prompt+50)+500 || l.Requests.Limit != 1440 || l.Requests.Remaining != 238 {
				t.Errorf("limits %+v", l)
			}
		})
	}
	for _, name := range []string{"openai", "azure", "azure v1"} {
		p := providers(t, url)[name]
		s.Reset()
		resp, err := p.Embed(t.Context(), model.EmbedRequest{Inputs: []string{"one", "two of them"}, Dimensions: 16})
		if err != nil || len(resp.Vectors) != 2 || len(resp.Vectors[1]) != 16 || resp.Usage.InputTokens != 4 || resp.Limits.Tokens.Remaining != 239_996 {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
	}
}

// Our providers recognise every denial in every shape with certainty. A denied call is not
// charged, and the denial ends when the script says so.
func TestOurProvidersUnderstandEveryDenial(t *testing.T) {
	s, url := start(t, fast(nil))
	for name, p := range providers(t, url) {
		r, err := model.NewRouter(map[string]model.Model{"chat": {Deployments: []*model.Deployment{{Name: "east", Provider: p}}}})
		if err != nil {
			t.Fatal(err)
		}
		for denial, want := range map[Denial]quota.Denial{Unauthorized: quota.Unauthorized, InsufficientQuota: quota.Unpaid, NotFound: quota.NotFound} {
			t.Run(name+" "+string(denial), func(t *testing.T) {
				s.Reset()
				if status, _, body := send(t, http.MethodPut, url+"/_sim/faults", "- denied: "+string(denial), "api-key", key); status != 200 || !strings.Contains(body, `"denied":"`+string(denial)+`"`) {
					t.Fatalf("%d %s", status, body)
				}
				call := &quota.Call{Deployment: "east"}
				_, _, err := r.Chat(quota.WithCall(t.Context(), call), "chat", say("hi", 50))
				if o := call.Outcome; err == nil || o == nil || o.Kind != quota.Denied || o.Denial != want || !o.Certain {
					t.Errorf("%v was told as %+v", err, o)
				}
				if st := s.Stats().Deployments["sim"]; st.Calls != 1 || st.Denied != 1 || st.TokensAdmitted != 0 || st.InFlight != 0 {
					t.Errorf("stats %+v", st)
				}
				send(t, http.MethodPut, url+"/_sim/faults", "none", "api-key", key)
				if _, err := p.Chat(t.Context(), say("hi", 50)); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		}
	}
}

func TestStructuredOutputIsRealWork(t *testing.T) {
	_, url := start(t, fast(nil))
	req := say("Classify by these labels: praise, complaint\n<document>The new pumps are quiet and the crew loves them.</document>", 200)
	req.JSONSchema = json.RawMessage(`{"type":"object","properties":{"label":{"type":"string","enum":["praise","complaint"]}},"required":["label"],"additionalProperties":false}`)
	for name, p := range providers(t, url) {
		resp, err := p.Chat(t.Context(), req)
		var got struct{ Label string }
		if err != nil || json.Unmarshal([]byte(resp.Text), &got) != nil || got.Label != "praise" && got.Label != "complaint" {
			t.Errorf("%s: %q, %v", name, resp.Text, err)
		}
	}
	d := fast(func(d *Deployment) { d.Content = ContentWork })
	_, url = start(t, d)
	resp, err := providers(t, url)["openai"].Chat(t.Context(), say("Summarize: The Harbour Board met on Monday. It closed the north quay.", 200))
	if err != nil || !strings.Contains(resp.Text, "Harbour Board") {
		t.Errorf("%q, %v", resp.Text, err)
	}
}

// A 429 says in the shape of each API how long to wait for a quota that is used up.
func TestThrottling(t *testing.T) {
	for name, c := range map[string]struct {
		kind    Kind
		headers Headers
		wait    [2]time.Duration // least and most
		body    []string
	}{
		"openai": {KindOpenAI, HeadersFull, [2]time.Duration{20 * time.Second, 40 * time.Second},
			[]string{"Rate limit reached for sim in organization org-sim on tokens per min (TPM): Limit 1000"}},
		"azure": {KindAzure, HeadersFull, [2]time.Duration{50 * time.Second, 60 * time.Second},
			[]string{"have exceeded token rate limit", "version 2024-10-21"}},
		"azure v1": {KindAzure, HeadersMisspelled, [2]time.Duration{50 * time.Second, 60 * time.Second}, nil},
		"anthropic": {KindAnthropic, HeadersFull, [2]time.Duration{5 * time.Second, 60 * time.Second},
			[]string{"rate limit of 1000 input tokens per minute"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, url := start(t, fast(func(d *Deployment) { d.Kind, d.TokensPerMinute, d.Headers = c.kind, 1000, c.headers }))
			p := providers(t, url)[name]
			long := say(strings.Repeat("word ", 650), 10) // 823 tokens, and 10
			if _, err := p.Chat(t.Context(), long); err != nil {
				t.Fatal(err)
			}
			resp, err := p.Chat(t.Context(), long)
			var e *forebay.TaskError
			if !errors.As(err, &e) || e.Class != forebay.ClassThrottled || e.Code != model.CodeRateLimited || e.RetryAfter < c.wait[0] || e.RetryAfter > c.wait[1] {
				t.Fatalf("error %v, %+v", err, e)
			}
			for _, part := range c.body {
				if !strings.Contains(e.Message, part) {
					t.Errorf("message %q lacks %q", e.Message, part)
				}
			}
			if resp.Limits.RetryAfter != e.RetryAfter || !resp.Limits.Tokens.Known && !resp.Limits.InputTokens.Known {
				t.Errorf("limits %+v", resp.Limits)
			}
			dimension := Tokens
			if name == "anthropic" {
				dimension = InputTokens
			}
			if st := s.Stats().Deployments["sim"]; st.Throttled[dimension] != 1 || st.Calls != 2 || st.Answered != 1 {
				t.Errorf("stats %+v", st)
			}
		})
	}
	t.Run("oversize", func(t *testing.T) {
		_, url := start(t, fast(func(d *Deployment) { d.TokensPerMinute = 100 }))
		_, err := providers(t, url)["azure"].Chat(t.Context(), say("x", 500))
		var e *forebay.TaskError
		if !errors.As(err, &e) || e.Code != model.CodeRequestExceedsQuota || e.RetryAfter != 24*time.Hour {
			t.Errorf("%+v", e)
		}
	})
}

func TestHeaderKinds(t *testing.T) {
	for kind, want := range map[Headers]model.RateLimits{
		HeadersFull:       {Requests: model.RateLimit{Limit: 120, Remaining: 19, Known: true, Reset: 10 * time.Second}, Tokens: model.RateLimit{Limit: 20_000, Remaining: 19_984, Known: true, Reset: time.Minute}},
		HeadersSlice:      {Requests: model.RateLimit{Limit: 20, Remaining: 19, Known: true, Reset: 10 * time.Second}, Tokens: model.RateLimit{Limit: 20_000, Remaining: 19_984, Known: true, Reset: time.Minute}},
		HeadersRemaining:  {Requests: model.RateLimit{Remaining: 19, Known: true}, Tokens: model.RateLimit{Remaining: 19_984, Known: true}},
		HeadersMisspelled: {Requests: model.RateLimit{Remaining: 19, Known: true}, Tokens: model.RateLimit{Remaining: 19_984, Known: true}},
		HeadersRetryAfter: {}, HeadersUnknown: {}, HeadersNone: {},
	} {
		_, url := start(t, fast(func(d *Deployment) { d.TokensPerMinute, d.Headers = 20_000, kind }))
		resp, err := providers(t, url)["azure"].Chat(t.Context(), say("x", 6)) // 3 + 1 + 3 + 3 + 6
		for got, want := range map[*time.Duration]time.Duration{&resp.Limits.Requests.Reset: want.Requests.Reset, &resp.Limits.Tokens.Reset: want.Tokens.Reset} {
			if *got > 0 && *got <= want { // some of the window may have passed
				*got = want
			}
		}
		if err != nil || resp.Limits != want {
			t.Errorf("%s: %+v, %v; want %+v", kind, resp.Limits, err, want)
		}
	}
	_, url := start(t, fast(func(d *Deployment) { d.Kind, d.TokensPerMinute = KindPTU, 1000 }))
	resp, err := providers(t, url)["azure"].Chat(t.Context(), say("x", 90))
	if err != nil || resp.Limits.Utilization != 0.1 {
		t.Errorf("%+v, %v", resp.Limits, err)
	}
}

func TestFaultsThroughOurProviders(t *testing.T) {
	for _, c := range []struct {
		fault  Fault
		code   string
		wasted bool
	}{
		{Fault{Errors: map[int]float64{500: 1}}, model.CodeServerError, true},
		{Fault{Errors: map[int]float64{503: 1}}, model.CodeUnavailable, true},
		{Fault{Errors: map[int]float64{529: 1}}, model.CodeOverloaded, true},
		{Fault{Errors: map[int]float64{429: 1}, RetryAfter: Duration(7 * time.Second)}, model.CodeRateLimited, false},
		{Fault{Outage: true}, model.CodeConnectionLost, false},
		{Fault{Cut: 1}, model.CodeStreamCut, true},
		{Fault{Malformed: 1}, model.CodeMalformedResponse, true},
		{Fault{ContentFilter: 1}, model.CodeContentFilter, true},
	} {
		s, url := start(t, fast(func(d *Deployment) { d.Faults = Script{c.fault}; d.OutputTokens = 400; d.OutputSpread = 0 }))
		wait := watched(t, s)
		for name, p := range providers(t, url) {
			s.Reset()
			_, err := p.Chat(t.Context(), say("x", 500))
			var e *forebay.TaskError
			code := c.code
			switch {
			case c.fault.ContentFilter > 0 && name == "anthropic":
				code = model.CodeBadRequest // Anthropic has no code for it
			case c.fault.Cut > 0: // a stream that is cut ends before its end, or breaks
				if errors.As(err, &e) && e.Code == model.CodeConnectionLost {
					code = e.Code
				}
			}
			if !errors.As(err, &e) || e.Code != code || c.fault.RetryAfter > 0 && e.RetryAfter != 7*time.Second {
				t.Errorf("%s, %+v: %v", name, c.fault, err)
			}
			st := wait(func(st Stats) bool { return st.InFlight == 0 })
			if st.Calls != 1 || st.Answered != 0 || (st.TokensWasted > 0) != c.wasted || st.TokensWasted != st.TokensAdmitted {
				t.Errorf("%s, %+v: stats %+v", name, c.fault, st)
			}
		}
	}
}

// watched returns a function that waits until the statistics are as wanted, because a call ends a
// moment after its client knows. Call it before the first call.
func watched(t testing.TB, s *Server) func(func(Stats) bool) Stats {
	changes := make(chan struct{}, 1)
	s.changed = func() {
		select {
		case changes <- struct{}{}:
		default: // one that nobody has looked at yet says it all
		}
	}
	return func(wanted func(Stats) bool) Stats {
		t.Helper()
		for late := time.After(time.Minute); ; {
			st := s.Stats().Deployments["sim"]
			if wanted(st) {
				return st
			}
			select {
			case <-changes:
			case <-late:
				t.Fatalf("stats stay %+v", st)
			}
		}
	}
}

func TestClientsThatGoAway(t *testing.T) {
	s, url := start(t, fast(func(d *Deployment) { d.FirstToken = Duration(time.Hour) }))
	wait := watched(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := providers(t, url)["openai"].Chat(ctx, say("x", 100))
		done <- err
	}()
	wait(func(st Stats) bool { return st.InFlight == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if st := wait(func(st Stats) bool { return st.Gone == 1 }); st.TokensWasted != st.TokensAdmitted || st.TokensWasted == 0 || st.PeakInFlight != 1 {
		t.Errorf("stats %+v", st)
	}
}

func TestPaceOfStreams(t *testing.T) {
	_, url := start(t, fast(func(d *Deployment) {
		d.FirstToken, d.TokensPerSecond, d.OutputTokens, d.OutputSpread = Duration(100*time.Millisecond), 400, 100, 0
	}))
	began := time.Now()
	var headersAfter time.Duration
	req := say("x", 500)
	req.OnLimits = func(model.RateLimits) { headersAfter = time.Since(began) }
	resp, err := providers(t, url)["openai"].Chat(t.Context(), req)
	// 100 ms and 100 tokens at 400 a second; only the least it takes is certain.
	if took := time.Since(began); err != nil || resp.Usage.OutputTokens != 100 || took < 350*time.Millisecond || headersAfter < 100*time.Millisecond {
		t.Errorf("%d tokens in %v, headers after %v: %v", resp.Usage.OutputTokens, took, headersAfter, err)
	}
}

func TestLengthsAreHeavyTailed(t *testing.T) {
	d, err := NewService(fast(nil), 7, epoch)
	if err != nil {
		t.Fatal(err)
	}
	var short, long, cut, sum int
	const n = 5000
	for i := range n {
		r := &request{Messages: []message{{"user", text(fmt.Sprint("prompt ", i))}}, MaxTokens: 1000}
		_, key := r.promptTokens()
		a, err := d.compose(r, key)
		if err != nil || a.tokens < 1 || a.tokens > 1000 || tokensOf(a.text) != a.tokens || (a.finish == "length") && a.tokens != 1000 {
			t.Fatalf("answer of %d tokens, %d bytes, %s, %v", a.tokens, len(a.text), a.finish, err)
		}
		sum += a.tokens
		switch {
		case a.finish == "length":
			cut++
		case a.tokens < 150:
			short++
		case a.tokens > 600:
			long++
		}
	}
	// Half are below the median of 150; 2.9 % above 1,000 and 5.4 % between 600 and that.
	if short < n*46/100 || short > n*54/100 || cut < n*2/100 || cut > n*4/100 || long < n*4/100 || long > n*7/100 || sum/n < 180 {
		t.Errorf("of %d: %d short, %d long, %d cut, mean %d", n, short, long, cut, sum/n)
	}
}

// wantNoLeak gives goroutines longer to end than goleak's half a second.
func wantNoLeak(t *testing.T, before goleak.Option) {
	t.Helper()
	for begun := time.Now(); ; {
		err := goleak.Find(before)
		if err == nil {
			return
		}
		if time.Since(begun) > 20*time.Second {
			t.Error(err)
			return
		}
	}
}

func TestRunStopsGracefully(t *testing.T) {
	defer wantNoLeak(t, goleak.IgnoreCurrent())
	defer http.DefaultClient.CloseIdleConnections()
	var log strings.Builder
	s, err := NewServer(ServerOptions{AnyModel: true, Deployments: []Deployment{fast(func(d *Deployment) {
		d.Faults = Script{{Hang: 1}}
		d.Model = "gpt"
	})}}, &log)
	if err != nil {
		t.Fatal(err)
	}
	wait := watched(t, s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, l) }()
	url := "http://" + l.Addr().String()
	if status, _, body := send(t, http.MethodGet, url+"/healthz", ""); status != 200 || body != "ok\n" {
		t.Errorf("%d %s", status, body)
	}
	answered := make(chan error, 1)
	go func() {
		resp, err := http.Post(url+"/v1/embeddings", "application/json", strings.NewReader(`{"model":"x","input":"secret words"}`))
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()
	wait(func(st Stats) bool { return st.InFlight == 1 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := <-answered; err == nil {
		t.Error("a call that hangs was answered")
	}
	var e entry
	if err := json.Unmarshal([]byte(log.String()), &e); err != nil || e.Outcome != Hung || e.Charged != 3 || e.Deployment != "sim" || !e.Embed || strings.Contains(log.String(), "secret") {
		t.Errorf("log %q, %v", log.String(), err)
	}
}

func BenchmarkChat(b *testing.B) {
	_, url := start(b, fast(func(d *Deployment) { d.TokensPerMinute, d.RequestsPerMinute = 0, 0 }))
	for name, p := range providers(b, url) {
		b.Run(name, func(b *testing.B) {
			req := say(strings.Repeat("word ", 200), 100)
			for b.Loop() {
				if _, err := p.Chat(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
