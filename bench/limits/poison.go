package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

const (
	poisonGood     = 200
	poisonPlaces   = 16
	poisonAttempts = 3
	poisonTokens   = 8           // of a good answer
	poisonSpeed    = 10          // of these a second
	poisonSilence  = time.Second // after which a call that hangs is given up
	poisonPatience = 8 * time.Minute
	// poisonAtOnce is how many cells run beside each other: their calls mostly wait.
	poisonAtOnce = 6
)

// poisonKind is how the calls of a job always fail.
type poisonKind struct {
	name  string
	reply modelsim.Reply
}

var poisonKinds = []poisonKind{
	{"500", modelsim.Reply{Status: http.StatusInternalServerError, Message: "no"}},
	{"truncated", modelsim.Reply{Body: []byte(`data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"del`)}},
	{"timeout", modelsim.Reply{Hang: true}},
}

// Poison measures good jobs alone and beside jobs whose calls always fail.
func Poison(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	t := measure.Table{
		Title: "Good jobs beside poisoned ones",
		Text: fmt.Sprintf(`A server process on SQLite with %d places, and a model over HTTP whose answers take %v. %d good jobs are
submitted alone, and once these are done the same number behind poisoned jobs, whose calls always fail: by a 500, by an answer that
ends too soon, or by silence for %v. All are one tenant's, so no fair share helps. Each row has a server of its own; %d rows
run at a time. Jobs have %d attempts, 1 s to 10 s apart. Ratio: time to the last good result, beside by alone. Not ended:
jobs that were still live after %v.`, poisonPlaces, poisonTokens*time.Second/poisonSpeed, poisonGood, poisonSilence,
			poisonAtOnce, poisonAttempts, poisonPatience),
		Columns: []string{"alone s", "beside s", "ratio", "good jobs without result", "not ended", "all ended after s", "most calls of one job"},
	}
	counts, deployments := []int{3, 12, 50}, []int{1, 2}
	if b.Quick {
		counts, deployments = []int{12}, []int{1}
	}
	var cells []*poisonCell
	for _, d := range deployments {
		for _, kind := range poisonKinds {
			for _, n := range counts {
				cells = append(cells, &poisonCell{kind: kind, poisoned: n, deployments: d})
			}
		}
	}
	places := make(chan struct{}, poisonAtOnce)
	var running sync.WaitGroup
	for _, c := range cells {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			c.measured, c.err = c.measure(ctx, b)
		})
	}
	running.Wait()
	worst, failed, open := 0.0, 0.0, 0.0
	for _, c := range cells {
		if c.err != nil {
			return t, fmt.Errorf("%s: %w", c, c.err)
		}
		t.Rows = append(t.Rows, measure.Row{Name: c.String(), Samples: []measure.Sample{c.measured}})
		worst = max(worst, c.measured["ratio"])
		failed += c.measured["good jobs without result"]
		open += c.measured["not ended"]
	}
	t.Expect("highest ratio", worst, "<", 1.5)
	t.Expect("good jobs without result", failed, "<", 1)
	t.Expect("jobs that have not ended", open, "<", 1)
	t.Note("load average after the run: %s", measure.FirstLine("/proc/loadavg"))
	return t, nil
}

// poisonCell is one row: a server, its model, and what was measured with them.
type poisonCell struct {
	kind        poisonKind
	poisoned    int
	deployments int

	measured measure.Sample
	err      error

	mu    sync.Mutex
	calls map[string]int // by marker
	good  int            // good jobs that were called
}

func (c *poisonCell) String() string {
	if c.deployments == 1 {
		return fmt.Sprintf("1 deployment, %d × %s", c.poisoned, c.kind.name)
	}
	return fmt.Sprintf("%d deployments, %d × %s", c.deployments, c.poisoned, c.kind.name)
}

func (c *poisonCell) answer(call modelsim.Call) modelsim.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[call.Marker]++
	if strings.HasPrefix(call.Marker, "bad") {
		return c.kind.reply
	}
	if c.calls[call.Marker] == 1 {
		c.good++
	}
	return modelsim.Reply{Text: strings.Repeat("word", poisonTokens)}
}

func (c *poisonCell) measure(ctx context.Context, b *measure.Bench) (measured measure.Sample, err error) {
	c.calls = map[string]int{}
	at, err := b.SQLite().Place(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.Release()) }()
	var deployments []server.Deployment
	for i := range c.deployments {
		model := modelsim.StartTest(c.answer, func(d *modelsim.Deployment) { d.TokensPerSecond = poisonSpeed })
		defer model.Close()
		deployments = append(deployments, server.Deployment{Name: fmt.Sprintf("d%d", i), Provider: server.ProviderOpenAI,
			Endpoint: model.URL(), Model: "m", IdleTimeout: poisonSilence})
	}
	queue := server.Queue{Concurrency: poisonPlaces, Retry: server.Retry{First: time.Second, Max: 10 * time.Second, Attempts: poisonAttempts}}
	s, err := serving.StartServiceFor(ctx, at, queue, deployments...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	alone, err := c.run(ctx, s, 0, 0)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	beside, err := c.run(ctx, s, 1, c.poisoned)
	if err != nil {
		return nil, err
	}
	ending, stop := context.WithDeadline(ctx, begun.Add(poisonPatience))
	defer stop()
	q, waited := s.Drained(ending)
	ended := time.Since(begun)
	if waited != nil && (ctx.Err() != nil || ending.Err() == nil) {
		return nil, waited
	}
	succeeded, err := s.Count(ctx, forebay.StatusSucceeded)
	if err != nil {
		return nil, err
	}
	measured = measure.Sample{"alone s": alone.Seconds(), "beside s": beside.Seconds(), "ratio": beside.Seconds() / alone.Seconds(),
		"good jobs without result": float64(2*poisonGood - succeeded), "not ended": float64(q.Active + q.Scheduled + q.Locked), "most calls of one job": float64(c.most())}
	if waited == nil {
		measured["all ended after s"] = ended.Seconds()
	}
	return measured, nil
}

// most is how often the poisoned job was called that was called most.
func (c *poisonCell) most() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for marker, calls := range c.calls {
		if strings.HasPrefix(marker, "bad") {
			n = max(n, calls)
		}
	}
	return n
}

// run submits good jobs behind poisoned ones and returns when the last good one has ended.
func (c *poisonCell) run(ctx context.Context, s *serving.Service, round, poisoned int) (time.Duration, error) {
	var inputs []json.RawMessage
	input := func(kind string, i int) {
		inputs = append(inputs, json.RawMessage(fmt.Sprintf(`{"messages":[{"role":"user","content":"[[%s-%d-%d]] please"}],"max_tokens":20}`, kind, round, i)))
	}
	for i := range poisoned {
		input("bad", i)
	}
	for i := range poisonGood {
		input("good", i)
	}
	begun := time.Now()
	for body := range serving.BulkBodies(inputs) {
		if _, err := s.PostBody(ctx, s.URL+"/v1/jobs/bulk", "application/x-ndjson", body); err != nil {
			return 0, err
		}
	}
	limited, stop := context.WithTimeout(ctx, poisonPatience)
	defer stop()
	for {
		c.mu.Lock()
		called := c.good
		c.mu.Unlock()
		// Pages of jobs are asked for only near the end, lest they cost what is measured.
		if called >= poisonGood*(round+1) {
			done, err := s.Count(limited, forebay.StatusSucceeded)
			if err != nil {
				return 0, err
			}
			if done >= poisonGood*(round+1) {
				return time.Since(begun), nil
			}
		}
		if err := sleep.For(limited, 50*time.Millisecond); err != nil {
			if ctx.Err() != nil {
				return 0, err
			}
			return time.Since(begun), nil // the ratio and the jobs that are missing tell
		}
	}
}
