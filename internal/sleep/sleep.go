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
