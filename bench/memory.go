package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
)

// memory measures what large payloads take of a server's memory.
func memory(ctx context.Context, b *bench) (table, error) {
	t := table{
		title: "Memory with large payloads",
		text: `200 jobs from 16 clients to a server with its default limits (64 MiB of payloads held at once by requests, and as much by
running jobs; payloads over 64 KiB stand in files beside the database); the model answers each after 50 ms. A client that is
turned away with 429 tries again after what Retry-After says. Peak: the server's highest resident memory (VmHWM).`,
		columns: []string{"peak resident MB", "resident MB at the end", jobRate, "MB/s", "turned away"},
	}
	const half, all, none = "100 jobs of 5 MB", "200 jobs of 5 MB", "200 jobs of 1 KiB"
	err := t.takeTurns(ctx, b.size(2, 1),
		contender{none, func(ctx context.Context) (sample, error) { return payloads(ctx, b, 200, 1024) }},
		contender{half, func(ctx context.Context) (sample, error) { return payloads(ctx, b, 100, 5_000_000) }},
		contender{all, func(ctx context.Context) (sample, error) { return payloads(ctx, b, 200, 5_000_000) }})
	peak := func(name string) float64 { return t.median(name, "peak resident MB") }
	t.expect("peak with 200 large jobs as a multiple of that with 100", peak(all)/peak(half), "<", 1.25)
	t.note("more than with small jobs: %s MB, of 1,000 MB submitted", format(peak(all)-peak(none)))
	return t, err
}

func payloads(ctx context.Context, b *bench, jobs, size int) (s sample, err error) {
	const clients = 16
	f, err := startService(ctx, b, "forebay", behaviour{delay: 50 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	body, err := json.Marshal(forebay.SubmitRequest{Task: "chat", Input: quoted(size)})
	if err != nil {
		return nil, err
	}
	refused := make([]int, jobs)
	begun := time.Now()
	err = inParallel(clients, jobs, func(i int) error {
		for {
			_, err := f.post(ctx, f.url+"/v1/jobs", "application/json", body)
			var status *statusError
			if !errors.As(err, &status) || status.code != 429 && status.code != 503 {
				return err
			}
			refused[i]++
			seconds, _ := strconv.Atoi(status.retryAfter)
			time.Sleep(time.Duration(max(1, seconds)) * time.Second)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := f.recorded(ctx, int64(jobs)); err != nil {
		return nil, err
	}
	took := time.Since(begun).Seconds()
	away := 0
	for _, n := range refused {
		away += n
	}
	return sample{
		"peak resident MB": memoryOf(f.pid, "VmHWM"), "resident MB at the end": memoryOf(f.pid, "VmRSS"),
		jobRate: float64(jobs) / took, "MB/s": float64(jobs) * float64(size) / 1e6 / took, "turned away": float64(away),
	}, f.succeeded(ctx, jobs)
}
