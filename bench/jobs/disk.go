package jobs

import (
	"context"
	"os"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
)

func diskLatency(ctx context.Context, b *measure.Bench, writes int) (measure.Sample, error) {
	took, err := appendAndSync(b.Dir, func(n int, begun time.Time) bool {
		select {
		case <-time.After(time.Until(begun.Add(time.Duration(n) * time.Second / pace))):
		case <-ctx.Done():
			return false
		}
		return n < writes
	})
	if err != nil {
		return nil, err
	}
	return measure.Waits(took), nil
}

// diskRate appends 4 KiB and fsyncs for a while.
func diskRate(dir string, span time.Duration) (measure.Sample, error) {
	took, err := appendAndSync(dir, func(n int, begun time.Time) bool { return time.Since(begun) < span })
	if err != nil {
		return nil, err
	}
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	return measure.Sample{"fsyncs/s": float64(len(took)) / sum.Seconds()}, nil
}

// appendAndSync appends 4 KiB to a new file and fsyncs it, for as long as more returns true. It
// returns how long each took.
func appendAndSync(dir string, more func(n int, begun time.Time) bool) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, "append-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page, begun := make([]byte, 4096), time.Now()
	for more(len(took), begun) {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}
