//go:build hostile

package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
)

// Victim submits jobs at a steady pace, whatever the answers take, and remembers each.
type Victim struct {
	target     *Target
	every      time.Duration // between two submits
	bytes      int           // of an input
	reconnects bool

	mu       sync.Mutex
	accepted map[string]string // job ids by marker
	refused  []string          // what it got instead of 202
}

// newVictim returns one that has not begun. perSecond is its pace, bytes the size of its inputs.
func newVictim(t *Target, perSecond, bytes int) *Victim {
	return &Victim{target: t, every: time.Second / time.Duration(perSecond), bytes: bytes, accepted: map[string]string{}}
}

// Waits are what the victim has waited for in some windows.
type Waits struct {
	Submit []time.Duration // from before the request to its 202
	Start  []time.Duration // from before the request to the call at the model
}

func (w *Waits) add(more Waits) {
	w.Submit, w.Start = append(w.Submit, more.Submit...), append(w.Start, more.Start...)
}

// p99 is the 99th percentile, the highest of fewer than a hundred.
func p99(waits []time.Duration) time.Duration {
	if len(waits) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(waits))
	return sorted[(len(sorted)*99+99)/100-1]
}

// window submits for a while and returns what that took once everything has started. What does not
// start within a limit counts as that limit.
func (v *Victim) window(ctx context.Context, length time.Duration) (w Waits) {
	const startLimit = 20 * time.Second
	type sent struct {
		marker string
		at     time.Time
	}
	var mu sync.Mutex
	var jobs []sent
	var open sync.WaitGroup
	pace := time.NewTicker(v.every)
	defer pace.Stop()
	over := time.After(length)
	filler := strings.Repeat("word ", v.bytes/5)
	for running := true; running; {
		open.Go(func() {
			marker, at := unique("victim"), time.Now()
			ok := v.submit(ctx, marker, filler)
			mu.Lock()
			defer mu.Unlock()
			w.Submit = append(w.Submit, time.Since(at))
			if ok {
				jobs = append(jobs, sent{marker, at})
			}
		})
		select {
		case <-pace.C:
		case <-over:
			running = false
		}
	}
	open.Wait()
	until := time.Now().Add(startLimit)
	for _, job := range jobs {
		var began []time.Time
		within(ctx, time.Until(until), func() bool {
			began = v.target.Model.Began(job.marker)
			return len(began) > 0 || !v.target.Alive()
		})
		wait := startLimit
		if len(began) > 0 {
			wait = began[0].Sub(job.at)
		}
		w.Start = append(w.Start, wait)
	}
	return w
}

func (v *Victim) submit(ctx context.Context, marker, filler string) bool {
	var got Answer
	tries := 1
	if v.reconnects {
		tries = 3
	}
	for range tries {
		got = v.target.victim().call(ctx, http.MethodPost, "/v1/jobs", forebay.SubmitRequest{Task: "chat", Input: text(modelsim.Marked(marker, filler))})
		if got.Err == nil {
			break
		}
	}
	var job forebay.Job
	if got.Err == nil && got.Status == http.StatusAccepted {
		got.Err = json.Unmarshal(got.Body, &job)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if got.Err != nil || got.Status != http.StatusAccepted {
		v.refused = append(v.refused, got.String())
		return false
	}
	v.accepted[marker] = job.ID
	return true
}

// check returns what the victim was refused or has lost.
func (v *Victim) check(ctx context.Context) (faults []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.refused); n > 0 {
		faults = append(faults, fmt.Sprintf("%d of the victim's submits were refused: %.200s", n, v.refused[0]))
	}
	if !v.target.Alive() {
		return append(faults, "the server process ended: "+lastLine(v.target.log.String()))
	}
	lost, example := 0, ""
	until := time.Now().Add(patience)
	for marker, id := range v.accepted {
		var job forebay.Job
		ok := within(ctx, max(50*time.Millisecond, time.Until(until)), func() bool {
			got := v.target.victim().call(ctx, http.MethodGet, "/v1/jobs/"+id, nil)
			return got.Status == http.StatusOK && json.Unmarshal(got.Body, &job) == nil && job.Status.Terminal()
		})
		if !ok || job.Status != forebay.StatusSucceeded || !strings.Contains(string(job.Result), "answer to "+marker) {
			lost, example = lost+1, fmt.Sprintf("%s is %s", id, job.Status)
		}
	}
	if lost > 0 {
		faults = append(faults, fmt.Sprintf("%d of the victim's %d accepted jobs have no result: %s", lost, len(v.accepted), example))
	}
	return faults
}
