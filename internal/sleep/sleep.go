// Package sleep lets time pass for as long as a context lives.
package sleep

import (
	"context"
	"time"
)

// For returns after d, or with the context's error as soon as that ends.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pauses between tries.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// Again calls f until it succeeds, fails with an error that may not pass, or patience or the
// context ends. It returns the last error of f.
func Again(ctx context.Context, patience time.Duration, mayPass func(error) bool, f func() error) error {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := f()
		if err == nil || !mayPass(err) || time.Since(began) > patience || For(ctx, pause) != nil {
			return err
		}
	}
}
