package store

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/pgtest"
)

func open(t testing.TB) (*Store, int64, int64) {
	t.Helper()
	return openWith(t, Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
}

func openWith(t testing.TB, opts Options) (*Store, int64, int64) {
	t.Helper()
	s, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	tenant, err := s.Queues.EnsureTenant(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	queue, err := s.Queues.EnsureQueue(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	return s, tenant, queue
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// BenchmarkLife is the full life of a 1 KiB job: submit, claim, settle with a 1 KiB result.
func BenchmarkLife(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		benchmarkLife(b, Options{Path: filepath.Join(b.TempDir(), "forebay.db"), Serve: true})
	})
	b.Run("postgresql", func(b *testing.B) { benchmarkLife(b, Options{URL: pgtest.Database(b), Serve: true}) })
}

func benchmarkLife(b *testing.B, opts Options) {
	s, tenant, queue := openWith(b, opts)
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
				res, err := s.Jobs.Submit(ctx, []NewJob{{ID: fmt.Sprintf("job_%d_%d", start.UnixNano(), n), Tenant: tenant, Queue: queue, Task: "echo", Priority: 5,
					MaxAttempts: 5, Input: payload, InputSize: 1024}})
				if err != nil || res[0].Err != nil {
					b.Error(err)
				}
			}
		})
		go func() {
			for {
				ds, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: SubqueueOf(queue, SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 10})
				if err != nil {
					return
				}
				for i := range ds {
					err := s.Jobs.Succeed(ctx, &ds[i], AttemptRecord{Deployment: "sim", Outcome: forebay.OutcomeSucceeded}, Output{Inline: payload, Size: 1024})
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
