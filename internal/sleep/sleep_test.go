package sleep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/sleep"
)

func TestFor(t *testing.T) {
	tests := map[string]struct {
		sleeps, ends time.Duration // the context ends after that; below 0: it has ended
		took         time.Duration
		want         error
	}{
		"the time passes":         {time.Minute, time.Hour, time.Minute, nil},
		"the context ends":        {time.Hour, time.Minute, time.Minute, context.DeadlineExceeded},
		"no time":                 {0, time.Hour, 0, nil},
		"no time, and no context": {-time.Second, -1, 0, context.DeadlineExceeded},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.ends)
				defer cancel()
				began := time.Now()
				if err := sleep.For(ctx, test.sleeps); !errors.Is(err, test.want) || time.Since(began) != test.took {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
			})
		})
	}
}
