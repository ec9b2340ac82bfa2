package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	"github.com/forebayhq/forebay/internal/sleep"
)

// Strategies are what people write who call a model themselves. Each makes every call itself and
// gives up a job where such programs do.

// prompts are the jobs of one run: bodies of chat completions with their estimated charges. The
// estimate is that of a client that counts the prompt's tokens exactly.
type prompts struct {
	bodies []json.RawMessage
	cost   []int64 // tokens
}

// strategy carries all jobs out and returns how many it gave up.
type strategy func(ctx context.Context, e *endpoint, jobs prompts) (failed int, err error)

// endpoint is one deployment as a client sees it.
type endpoint struct {
	serving.Client
	url                                string
	tokensPerMinute, requestsPerMinute int
}

// call makes one call. RetryAfter is what a refusal asked for.
func (e *endpoint) call(ctx context.Context, body []byte) (status int, retryAfter time.Duration, err error) {
	_, err = e.PostBody(ctx, e.url, "application/json", body)
	var refusal *serving.StatusError
	switch {
	case err == nil:
		return http.StatusOK, 0, nil
	case errors.As(err, &refusal):
		seconds, _ := strconv.Atoi(refusal.RetryAfter)
		return refusal.Code, time.Duration(seconds) * time.Second, nil
	case ctx.Err() != nil:
		return 0, 0, ctx.Err()
	}
	return 0, 0, nil // no connection, or one that broke: an attempt like any other
}

// pool is so many workers, each of which takes a job and stays with it until it has ended. again
// returns how long to wait before the next attempt, or that there is none.
func pool(workers int, again func(attempts int, retryAfter time.Duration) (wait time.Duration, ok bool)) strategy {
	return func(ctx context.Context, e *endpoint, jobs prompts) (int, error) {
		var failed atomic.Int64
		err := measure.InParallel(workers, len(jobs.bodies), func(i int) error {
			for attempts := 1; ; attempts++ {
				status, retryAfter, err := e.call(ctx, jobs.bodies[i])
				if err != nil || status == http.StatusOK {
					return err
				}
				wait, ok := again(attempts, retryAfter)
				if !ok {
					failed.Add(1)
					return nil
				}
				if err := sleep.For(ctx, wait); err != nil {
					return err
				}
			}
		})
		return int(failed.Load()), err
	}
}

func jitter(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d))) }

// patient waits as long as it is told, else with full jitter, until the job is done.
func patient(attempts int, retryAfter time.Duration) (time.Duration, bool) {
	if retryAfter > 0 {
		return retryAfter, true
	}
	return jitter(time.Second << min(attempts, 5)), true
}

// obedient does the same ten times, and does not come back with all the others.
func obedient(attempts int, retryAfter time.Duration) (time.Duration, bool) {
	if retryAfter > 0 {
		return retryAfter + jitter(time.Second), attempts < 10
	}
	return jitter(time.Second << min(attempts, 6)), attempts < 10
}

// cookbook keeps its own count: capacities of tokens and of requests refill steadily and bound
// the calls. Each job has five attempts. After a refusal all calls pause for fifteen seconds.
func cookbook(ctx context.Context, e *endpoint, jobs prompts) (int, error) {
	const (
		attempts = 5
		cooling  = 15 * time.Second
	)
	var (
		mu      sync.Mutex // guards what follows
		line    = make([]int, len(jobs.bodies))
		tries   = make([]int, len(jobs.bodies))
		restTo  time.Time
		failed  int
		open    = len(line)
		calls   sync.WaitGroup
		broken  error
		tokens  = float64(e.tokensPerMinute)
		slots   = float64(e.requestsPerMinute)
		counted = time.Now()
	)
	for i := range line {
		line[i] = i
	}
	make1 := func(i int) {
		status, _, err := e.call(ctx, jobs.bodies[i])
		mu.Lock()
		defer mu.Unlock()
		tries[i]++
		switch {
		case err != nil:
			broken = err
			open--
		case status == http.StatusOK:
			open--
		default:
			if status == http.StatusTooManyRequests {
				restTo = time.Now().Add(cooling)
			}
			if tries[i] < attempts {
				line = append(line, i)
				return
			}
			failed++
			open--
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		mu.Lock()
		if open == 0 || broken != nil {
			mu.Unlock()
			calls.Wait()
			return failed, broken
		}
		now := time.Now()
		minutes := now.Sub(counted).Minutes()
		counted = now
		tokens = min(tokens+minutes*float64(e.tokensPerMinute), float64(e.tokensPerMinute))
		slots = min(slots+minutes*float64(e.requestsPerMinute), float64(e.requestsPerMinute))
		if len(line) > 0 && now.After(restTo) && slots >= 1 && tokens >= float64(jobs.cost[line[0]]) {
			i := line[0]
			line = line[1:]
			tokens -= float64(jobs.cost[i])
			slots--
			calls.Go(func() { make1(i) })
		}
		mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			calls.Wait()
			return failed, fmt.Errorf("%d jobs are open: %w", open, ctx.Err())
		}
	}
}
