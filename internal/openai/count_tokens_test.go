package openai

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/turns"
)

// Counts wait a moment for a place. Who gets none hears whether its own tenant holds all that it
// may, or all tenants together do.
func TestCountsWaitForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Messages{counts: turns.NewLine(3, 2)}
		enter := func(tenant string) (func(), error) { return a.enterCount(turns.With(t.Context(), tenant)) }
		refused := func(tenant string, status int) {
			t.Helper()
			began := time.Now()
			_, err := enter(tenant)
			f, ok := err.(*failure)
			if !ok || f.status != status || f.retryAfter == 0 || time.Since(began) != countPatience {
				t.Errorf("%+v after %v", err, time.Since(began))
			}
		}
		var leave func()
		for _, tenant := range []string{"a", "a", "b"} {
			var err error
			if leave, err = enter(tenant); err != nil {
				t.Fatal(tenant, err)
			}
		}
		refused("a", http.StatusTooManyRequests)
		refused("b", statusOverloaded)
		gone, cancel := context.WithCancel(turns.With(t.Context(), "c"))
		cancel()
		if _, err := a.enterCount(gone); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.AfterFunc(countPatience/2, leave)
		if _, err := enter("c"); err != nil {
			t.Error("a place that was given back in time:", err)
		}
	})
}
