package stores_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/stores"
)

// BenchmarkLife is the full life of a 1 KiB job: submit, claim, settle with a 1 KiB result.
func BenchmarkLife(b *testing.B) { benchmarkLives(b) }

// BenchmarkLifeWithFeed is the same while somebody follows all events, or sums of them.
func BenchmarkLifeWithFeed(b *testing.B) {
	b.Run("events", func(b *testing.B) { benchmarkLives(b, feed.Filter{}) })
	b.Run("sums", func(b *testing.B) { benchmarkLives(b, feed.Filter{Sums: true}) })
}

func benchmarkLives(b *testing.B, followed ...feed.Filter) {
	b.Run("sqlite", func(b *testing.B) {
		benchmarkLife(b, db.Options{Path: filepath.Join(b.TempDir(), "forebay.db"), Serve: true}, followed)
	})
	b.Run("postgresql", func(b *testing.B) { benchmarkLife(b, db.Options{URL: pgtest.Database(b), Serve: true}, followed) })
}

// follow has somebody follow what happens, until the benchmark ends.
func follow(b *testing.B, s *stores.Stores, f feed.Filter) {
	hub := feed.NewHub(s.DB, "bench")
	s.DB.OnTold(hub.Tell)
	l, err := hub.Listen("bench", f)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	running.Go(func() {
		for {
			select {
			case <-l.Ready:
				l.Take()
			case <-ctx.Done():
				return
			}
		}
	})
	b.Cleanup(func() { stop(); running.Wait(); l.Close() })
}

func benchmarkLife(b *testing.B, opts db.Options, followed []feed.Filter) {
	s, tenant, queueID := openWith(b, opts)
	for _, f := range followed {
		follow(b, s, f)
	}
	payload := make([]byte, 1024)
	var serial, done atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	b.ResetTimer()
	start := time.Now()
	for range 64 {
		wg.Go(func() {
			for {
				n := serial.Add(1)
				if n > int64(b.N) {
					return
				}
				res, err := s.Jobs.Submit(ctx, []jobs.NewJob{{ID: fmt.Sprintf("job_%d_%d", start.UnixNano(), n), Tenant: tenant, Queue: queueID, Task: "echo", Priority: 5,
					MaxAttempts: 5, Input: payload, InputSize: 1024}})
				if err != nil || res[0].Err != nil {
					b.Error(err)
				}
			}
		})
		go func() {
			for {
				ds, err := s.Jobs.Claim(ctx, jobs.ClaimRequest{Subqueue: queue.SubqueueOf(queueID, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 10})
				if err != nil {
					return
				}
				for i := range ds {
					err := s.Jobs.Succeed(ctx, &ds[i], jobs.AttemptRecord{Deployment: "sim", Outcome: forebay.OutcomeSucceeded}, jobs.Output{Inline: payload, Size: 1024})
					if err != nil {
						b.Error(err)
					}
					if done.Add(1) == int64(b.N) {
						cancel()
					}
				}
			}
		}()
	}
	wg.Wait()
	<-ctx.Done()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "jobs/s")
}
