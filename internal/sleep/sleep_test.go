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

func TestAgain(t *testing.T) {
	passing, lasting := errors.New("passing"), errors.New("lasting")
	tests := map[string]struct {
		patience, ends time.Duration // the context ends after that
		errs           []error       // of the calls; the last one of all further ones
		calls          int
		took           time.Duration
	}{
		"success":          {time.Hour, time.Hour, []error{nil}, 1, 0},
		"it passes":        {time.Hour, time.Hour, []error{passing, passing, nil}, 3, 300 * time.Millisecond},
		"it lasts":         {time.Hour, time.Hour, []error{passing, lasting}, 2, 100 * time.Millisecond},
		"no patience":      {-1, time.Hour, []error{passing}, 1, 0},
		"patience ends":    {time.Second, time.Hour, []error{passing}, 5, 1500 * time.Millisecond},
		"the context ends": {time.Hour, 20 * time.Second, []error{passing}, 9, 20 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.ends)
				defer cancel()
				began, calls, last := time.Now(), 0, error(nil)
				err := sleep.Again(ctx, test.patience, func(err error) bool { return err == passing }, func() error {
					last = test.errs[min(calls, len(test.errs)-1)]
					calls++
					return last
				})
				if err != last || calls != test.calls || time.Since(began) != test.took {
					t.Errorf("%d calls, after %s: %v", calls, time.Since(began), err)
				}
			})
		})
	}
}
