package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
)

// Memory measures what large payloads take of a server's memory.
func Memory(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	t := measure.Table{
		Title: "Memory with large payloads",
		Text: `200 jobs from 16 clients to a server with its default limits (64 MiB of payloads held at once by requests, and as much by
running jobs; payloads over 64 KiB stand in files beside the database); the model answers each after 50 ms. A client that is
turned away with 429 tries again after what Retry-After says. Peak: the server's highest resident memory (VmHWM).`,
		Columns: []string{"peak resident MB", "resident MB at the end", measure.JobRate, "MB/s", "turned away"},
	}
	const half, all, none = "100 jobs of 5 MB", "200 jobs of 5 MB", "200 jobs of 1 KiB"
	err := t.TakeTurns(ctx, b.Size(2, 1),
		measure.Contender{Name: none, Round: func(ctx context.Context) (measure.Sample, error) { return payloads(ctx, b, 200, 1024) }},
		measure.Contender{Name: half, Round: func(ctx context.Context) (measure.Sample, error) { return payloads(ctx, b, 100, 5_000_000) }},
		measure.Contender{Name: all, Round: func(ctx context.Context) (measure.Sample, error) { return payloads(ctx, b, 200, 5_000_000) }})
	peak := func(name string) float64 { return t.Median(name, "peak resident MB") }
	t.Expect("peak with 200 large jobs as a multiple of that with 100", peak(all)/peak(half), "<", 1.25)
	t.Note("more than with small jobs: %s MB, of 1,000 MB submitted", measure.Format(peak(all)-peak(none)))
	return t, err
}

func payloads(ctx context.Context, b *measure.Bench, jobs, size int) (s measure.Sample, err error) {
	const clients = 16
	f, err := serving.StartService(ctx, b, "forebay", serving.Behaviour{Delay: 50 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	body, err := json.Marshal(forebay.SubmitRequest{Task: "chat", Input: measure.Quoted(size)})
	if err != nil {
		return nil, err
	}
	refused := make([]int, jobs)
	begun := time.Now()
	err = measure.InParallel(clients, jobs, func(i int) error {
		for {
			_, err := f.PostBody(ctx, f.URL+"/v1/jobs", "application/json", body)
			var status *serving.StatusError
			if !errors.As(err, &status) || status.Code != 429 && status.Code != 503 {
				return err
			}
			refused[i]++
			seconds, _ := strconv.Atoi(status.RetryAfter)
			time.Sleep(time.Duration(max(1, seconds)) * time.Second)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := f.Recorded(ctx, int64(jobs)); err != nil {
		return nil, err
	}
	took := time.Since(begun).Seconds()
	away := 0
	for _, n := range refused {
		away += n
	}
	return measure.Sample{
		"peak resident MB": measure.MemoryOf(f.PID, "VmHWM"), "resident MB at the end": measure.MemoryOf(f.PID, "VmRSS"),
		measure.JobRate: float64(jobs) / took, "MB/s": float64(jobs) * float64(size) / 1e6 / took, "turned away": float64(away),
	}, f.Succeeded(ctx, jobs)
}
