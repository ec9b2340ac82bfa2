package openai

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/api"
)

// A call is refused for its budget if that has no room for longer than the call may wait. A
// database that cannot be read refuses none.
func TestCallIsSpent(t *testing.T) {
	for _, of := range []struct {
		left time.Duration
		err  error
		want bool
	}{{left: time.Hour, want: true}, {left: time.Second}, {left: 0}, {left: time.Hour, err: errors.New("unreadable")}} {
		spent := func(context.Context, string) (time.Duration, error) { return of.left, of.err }
		w := waiting{API: New(Options{Spent: spent}), SurfaceRequest: &api.SurfaceRequest{Request: httptest.NewRequest(http.MethodPost, "/", nil)}, until: time.Now().Add(time.Minute)}
		if got := w.spent(); got != of.want {
			t.Errorf("%s, %v: %v", of.left, of.err, got)
		}
	}
}
