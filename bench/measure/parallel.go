package measure

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Paced calls f with 0 to n-1, rate times a second, and waits for all calls. Each has a goroutine
// of its own and starts at its time, so a slow call does not delay the next.
func Paced(ctx context.Context, rate, n int, f func(i int, due time.Time) error) error {
	var (
		all    sync.WaitGroup
		failed atomic.Pointer[error]
	)
	begun := time.Now()
	for i := range n {
		due := begun.Add(time.Duration(i) * time.Second / time.Duration(rate))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return ctx.Err()
		}
		all.Go(func() {
			if err := f(i, due); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Produce calls f so many times, spread over the producers, and returns how long each call took.
func Produce(calls int, f func() error) ([]time.Duration, error) {
	return ProduceFrom(Workers, calls, f)
}

// ProduceFrom is Produce with so many producers.
func ProduceFrom(goroutines, calls int, f func() error) ([]time.Duration, error) {
	took := make([]time.Duration, calls)
	err := InParallel(goroutines, calls, func(i int) error {
		begun := time.Now()
		err := f()
		took[i] = time.Since(begun)
		return err
	})
	return took, err
}

// InParallel calls f with 0 to n-1 from so many goroutines, until one fails.
func InParallel(goroutines, n int, f func(int) error) error {
	var (
		next   atomic.Int64
		all    sync.WaitGroup
		failed atomic.Pointer[error]
	)
	for range goroutines {
		all.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
