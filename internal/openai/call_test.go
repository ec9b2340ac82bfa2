package openai

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
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

// endedJobs are jobs that have all ended.
type endedJobs struct{ Jobs }

func (endedJobs) Cancel(context.Context, string, string) (forebay.Job, error) {
	return forebay.Job{}, forebay.Errorf(forebay.CodeConflict, "the job cannot be cancelled: it is failed")
}

// A call that has waited long enough is refused for that, though its job ends before it can be
// cancelled.
func TestCallEndsAsItIsGivenUp(t *testing.T) {
	w := waiting{API: New(Options{Jobs: endedJobs{}}), SurfaceRequest: &api.SurfaceRequest{Request: httptest.NewRequest(http.MethodPost, "/", nil)},
		call: &pending{ended: make(chan struct{}, 1)}}
	why := tooLong(forebay.Job{})
	if err := w.giveUp(why); err != error(why) {
		t.Errorf("the client hears %q", err)
	}
}
