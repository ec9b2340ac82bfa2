package modelsim

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestScriptSaysWhatHoldsWhen(t *testing.T) {
	reference, err := NamedScript("reference")
	if err != nil || reference.Validate() != nil {
		t.Fatal(err)
	}
	for minute, want := range map[float64]Conditions{
		0: {Latency: 1, Quota: 1, QuotaShown: true}, 25.5: {Outage: true, Latency: 1, Quota: 1, QuotaShown: true},
		44.9: {Latency: 4, Quota: 1, QuotaShown: true}, 45: {Latency: 1, Quota: 1, QuotaShown: true},
		60: {Latency: 1, Quota: 0.6}, 81: {Outage: true, Latency: 1, Quota: 1, QuotaShown: true}, 500: {Latency: 1, Quota: 1, QuotaShown: true},
	} {
		got := reference.At(time.Duration(minute * float64(time.Minute)))
		got.rates = nil
		if got.Outage != want.Outage || got.Latency != want.Latency || got.Quota != want.Quota || got.QuotaShown != want.QuotaShown {
			t.Errorf("minute %v: %+v", minute, got)
		}
	}
	var edges []float64
	for at, ok := reference.Next(-1); ok; at, ok = reference.Next(at) {
		edges = append(edges, at.Minutes())
	}
	if !slices.Equal(edges, []float64{10, 13, 25, 26, 35, 45, 55, 70, 80, 82, 95, 97}) {
		t.Errorf("edges %v", edges)
	}
	if fast := reference.Scaled(0.1); fast[0].To != Duration(78*time.Second) || reference[0].To != minutes(13) {
		t.Errorf("scaled %+v", fast[0])
	}

	both := Script{{To: minutes(2), Errors: map[int]float64{500: 0.2, 429: 0.1}, Latency: 2, Quota: 0.5, QuotaShown: true}, {From: minutes(1), Hang: 0.3, Latency: 3, Quota: 0.5}}
	c := both.At(90 * time.Second)
	turned := Script{{Denied: NotFound}, {From: minutes(1), To: minutes(2), Denied: Unauthorized}, {Latency: 2}}
	for minute, want := range []Denial{NotFound, Unauthorized, NotFound} {
		if c := turned.At(time.Duration(minute) * time.Minute); c.Denied != want {
			t.Errorf("minute %d: denied for %q, want %q", minute, c.Denied, want)
		}
	}
	if c.Latency != 6 || c.Quota != 0.25 || c.QuotaShown {
		t.Errorf("together %+v", c)
	}
	for u, want := range map[float64]int{0: 429, 0.0999: 429, 0.1001: 500, 0.2999: 500, 0.31: 0, 0.99: 0} {
		if _, status := c.Draw(u); status != want {
			t.Errorf("draw of %v: %d, want %d", u, status, want)
		}
	}
	if o, _ := c.Draw(0.45); o != Hung {
		t.Errorf("draw of 0.45: %s", o)
	}
	if o, _ := c.Draw(0.61); o != Answered {
		t.Errorf("draw of 0.61: %s", o)
	}
}

func TestScriptsThatMakeNoSense(t *testing.T) {
	for want, s := range map[string]Script{
		"from: must not be negative":       {{From: -1}},
		"to: must be later than from":      {{From: minutes(2), To: minutes(1)}},
		"errors: 200 is no error status":   {{Errors: map[int]float64{200: 0.1}}},
		"errors: the rate of 500 must be":  {{Errors: map[int]float64{500: math.NaN()}}},
		"hang: must be a rate":             {{Hang: 1.1}},
		"errors: the rates add up to 1.2;": {{Errors: map[int]float64{500: 0.6}, Cut: 0.6}},
		"latency: must be a factor":        {{Latency: -1}},
		"quota: must be a factor":          {{Quota: math.Inf(1)}},
		"retry_after: must be 0 to 168h":   {{RetryAfter: Duration(200 * time.Hour)}},
		"denied: must be one of [unauth":   {{Denied: "unathorized"}},
		"has 1001 parts":                   make(Script, 1001),
	} {
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// A deployment follows its script over time, and counts by the minute.
func TestADeploymentFollowsItsScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := NewService(fast(func(d *Deployment) {
			d.TokensPerMinute, d.RequestsPerMinute, d.Phase = 1000, 0, Duration(30*time.Second)
			d.Faults = Script{{From: minutes(1), To: minutes(2), Errors: map[int]float64{503: 1}}, {From: minutes(2), To: minutes(3), Quota: 0.5}}
		}), 1, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		try := func(tokens int) Outcome {
			now := time.Now()
			a := d.Begin(now, Cost{Prompt: tokens})
			d.End(now, a, a.Outcome, Used{})
			return a.Outcome
		}
		expect := func(after time.Duration, tokens int, want Outcome) {
			t.Helper()
			<-time.After(after)
			if got := try(tokens); got != want {
				t.Errorf("after %v: %s, want %s", after, got, want)
			}
		}
		expect(0, 900, Answered)               // 0:00
		expect(20*time.Second, 101, Throttled) // 0:20
		expect(10*time.Second, 800, Answered)  // 0:30, the next window
		expect(30*time.Second, 50, Failed)     // 1:00, charged
		expect(59*time.Second, 1000, Failed)   // 1:59, charged
		expect(2*time.Second, 1, Throttled)    // 2:01, and half the quota
		expect(29*time.Second, 500, Answered)  // 2:30
		expect(time.Second, 1, Throttled)      // 2:31
		expect(30*time.Second, 499, Answered)  // 3:01, all of it is back
		d.Reset(time.Now())                    // 0:00
		expect(0, 1000, Answered)              // nothing is left of what was
		expect(61*time.Second, 1000, Failed)   // and the script begins again
		st := d.Stats()
		if st.Calls != 2 || st.TokensAdmitted != 2000 || st.TokensWasted != 1000 || st.Errors[503] != 1 || st.HighestWindow != 1000 || st.HighestRolling != 1000 ||
			!slices.Equal(st.Windows, []Window{{0, 1, 1000}, {30, 1, 1000}}) || st.InFlight != 0 || st.LastCallAt.Sub(*st.FirstCallAt) != 61*time.Second {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestHighestMinute(t *testing.T) {
	y := newTally(epoch, 0)
	for _, a := range []struct {
		at     time.Duration
		tokens int64
	}{{50 * time.Second, 10}, {70 * time.Second, 20}, {109 * time.Second, 30}, {111 * time.Second, 40}, {10 * time.Minute, 50}} {
		y.admitted(at(a.at), a.tokens)
	}
	if y.HighestWindow != 90 || y.HighestRolling != 90 || len(y.Windows) != 3 || y.Windows[1] != (Window{60, 3, 90}) {
		t.Errorf("%+v", y.Stats)
	}
}

func TestControlWhileItRuns(t *testing.T) {
	s, url := startWith(t, ServerOptions{APIKey: key, Deployments: []Deployment{fast(func(d *Deployment) { d.Name = "east" }), fast(func(d *Deployment) { d.Name = "west" })}}, nil)
	auth := []string{"Authorization", "Bearer " + key}
	call := func(name string) int {
		t.Helper()
		status, _, _ := post(t, url+"/v1/chat/completions", `{"model":"`+name+`","messages":[{"role":"user","content":"x"}]}`, auth...)
		return status
	}
	if status, _, _ := send(t, http.MethodPut, url+"/_sim/faults", "reference"); status != 401 {
		t.Errorf("without the key: %d", status)
	}
	status, _, body := send(t, http.MethodPut, url+"/_sim/faults?deployment=west&scale=2", `[{"from":"0s","to":"1h","errors":{"503":1}}]`, auth...)
	if status != 200 || !strings.Contains(body, `"west":[{"from":"0s","to":"2h0m0s","errors":{"503":1}}]`) || !strings.Contains(body, `"east":[]`) {
		t.Errorf("%d %s", status, body)
	}
	if call("east") != 200 || call("west") != 503 {
		t.Error("the script is not in force")
	}
	if status, _, body := send(t, http.MethodPut, url+"/_sim/faults?scale=0.5", "reference", auth...); status != 200 || strings.Count(body, `"from":"5m0s","to":"6m30s"`) != 2 {
		t.Errorf("%d %s", status, body)
	}
	if call("west") != 200 {
		t.Error("the old script is in force")
	}
	for path, bodies := range map[string][]string{
		"":                 {"nope", "[{erors: {500: 1}}]", "- from: 5\n  to: soon", "[{hang: 2}]", ""},
		"?scale=0":         {"none"},
		"?deployment=nope": {"none"},
	} {
		for _, b := range bodies {
			if status, _, body := send(t, http.MethodPut, url+"/_sim/faults"+path, b, auth...); status != 400 && status != 404 || !strings.Contains(body, `"error":"`) {
				t.Errorf("%s %q: %d %s", path, b, status, body)
			}
		}
	}
	_, _, body = send(t, http.MethodGet, url+"/_sim/stats", "", auth...)
	var r Report
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.Deployments["west"].Errors[503] != 1 || r.Deployments["west"].Answered != 1 || r.Deployments["west"].Calls != 2 || r.Deployments["east"].Answered != 1 || r.Deployments["west"].TokensWasted == 0 {
		t.Errorf("%s %v", body, err)
	}
	if status, _, _ := send(t, http.MethodPost, url+"/_sim/reset", "", auth...); status != 200 || s.Stats().Deployments["west"].Calls != 0 {
		t.Error("not reset")
	}
}

// The estimate of a prompt is near its tokens, and the same each time.
func TestEstimate(t *testing.T) {
	d, err := NewService(fast(func(d *Deployment) { d.EstimateFactor, d.EstimateSpread = 1.2, 0.1 }), 3, epoch)
	if err != nil {
		t.Fatal(err)
	}
	var sum, square float64
	const n = 4000
	for i := range n {
		e := d.Estimate(1000, uint64(i))
		if e != d.Estimate(1000, uint64(i)) {
			t.Fatal("not the same twice")
		}
		sum += float64(e)
		square += float64(e) * float64(e)
	}
	mean := sum / n
	if deviation := math.Sqrt(square/n - mean*mean); math.Abs(mean-1200) > 10 || math.Abs(deviation-120) > 6 {
		t.Errorf("mean %v, deviation %v", mean, deviation)
	}
}

func FuzzReadScript(f *testing.F) {
	f.Add([]byte("reference"))
	f.Add([]byte("- {from: 1m, to: 2m, errors: {503: 0.5, 429: .1}, retry_after: 5s}\n- {hang: .1, quota: .6, quota_shown: true}"))
	f.Add([]byte(`[{"from":"0s","outage":true}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		faults, err := ReadScript(data)
		if err != nil {
			return
		}
		for at, ok := faults.Next(-1); ok; at, ok = faults.Next(at) {
			c := faults.At(at)
			c.Draw(0.5)
			if !(c.Latency > 0 && c.Quota > 0) {
				t.Fatalf("%+v", c)
			}
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"stop":"x","n":2}`))
	f.Add([]byte(`{"input":[[1,2],[3]],"encoding_format":"base64"}`))
	f.Add([]byte(`{"system":null,"max_tokens":1e9,"input":null,"stop":[null]}`))
	d, err := NewService(fast(nil), 1, epoch)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseRequest(body)
		if err != nil {
			return
		}
		tokens, key := r.promptTokens()
		if _, complaint := r.invalid(openAI, false); complaint != "" {
			return
		}
		a, err := d.compose(r, key)
		if tokens < 0 || err == nil && (a.tokens < 0 || a.tokens > maxOutput) {
			t.Fatalf("%d tokens in, %+v, %v", tokens, a.tokens, err)
		}
	})
}
