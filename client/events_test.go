package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forebayhq/forebay"
)

func writeEvent(w http.ResponseWriter, number int, status forebay.Status) {
	fmt.Fprintf(w, "id: %d\nevent: x\ndata: {\"number\":%d,\ndata: \"status\":%q}\n\n", number, number, status)
	w.(http.Flusher).Flush()
}

func TestEventsAreTakenUpWhereTheyBroke(t *testing.T) {
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		last := r.Header.Get("Last-Event-ID")
		switch calls.Add(1) {
		case 1:
			if last != "" || r.Header.Get("Accept") != "text/event-stream" {
				t.Errorf("headers are %v", r.Header)
			}
			fmt.Fprint(w, "retry: 1\n\n: heartbeat\r\n\r\n")
			writeEvent(w, 1, forebay.StatusQueued)
			writeEvent(w, 2, forebay.StatusRunning)
			fmt.Fprint(w, "id: 3\ndata: {\"number\":3") // cut off in the middle
			panic(http.ErrAbortHandler)
		case 2:
			answerProblem(w, http.StatusServiceUnavailable, forebay.CodeUnavailable, "", "starting")
		case 3:
			if last != "2" {
				t.Errorf("Last-Event-ID is %q, want 2", last)
			}
			writeEvent(w, 2, forebay.StatusRunning) // seen already
			writeEvent(w, 3, forebay.StatusRetrying)
			// A clean end without a terminal event: the server stops.
		case 4:
			if last != "3" {
				t.Errorf("Last-Event-ID is %q, want 3", last)
			}
			writeEvent(w, 4, forebay.StatusSucceeded)
		default:
			t.Error("connected again after the last event")
		}
	})
	var numbers []int64
	for e, err := range c.Events(t.Context(), "job_1", 0) {
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, e.Number)
	}
	if fmt.Sprint(numbers) != "[1 2 3 4]" || calls.Load() != 4 {
		t.Errorf("events %v in %d connections", numbers, calls.Load())
	}
}

func TestEventsEnd(t *testing.T) {
	t.Run("nothing more to come", func(t *testing.T) {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Last-Event-ID") != "7" {
				t.Errorf("Last-Event-ID is %q", r.Header.Get("Last-Event-ID"))
			}
			w.WriteHeader(http.StatusNoContent)
		})
		for e, err := range c.Events(t.Context(), "job_1", 7) {
			t.Errorf("got %v, %v", e, err)
		}
	})
	t.Run("not found", func(t *testing.T) {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			answerProblem(w, http.StatusNotFound, forebay.CodeNotFound, "", "not found")
		})
		n := 0
		for _, err := range c.Events(t.Context(), "job_1", 0) {
			if n++; forebay.CodeOf(err) != forebay.CodeNotFound {
				t.Errorf("error is %v", err)
			}
		}
		if n != 1 {
			t.Errorf("yielded %d times, want one error", n)
		}
	})
	t.Run("caller stops", func(t *testing.T) {
		gone := make(chan struct{})
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			writeEvent(w, 1, forebay.StatusQueued)
			<-r.Context().Done()
			close(gone)
		})
		for range c.Events(t.Context(), "job_1", 0) {
			break
		}
		<-gone
	})
	t.Run("context ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			writeEvent(w, 1, forebay.StatusQueued)
			<-r.Context().Done()
		})
		var last error
		for _, err := range c.Events(ctx, "job_1", 0) {
			last = err
			cancel()
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("error is %v", last)
		}
	})
	t.Run("too large", func(t *testing.T) {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "data: ", strings.Repeat("x", maxEventBytes+1), "\n\n")
		})
		for _, err := range c.Events(t.Context(), "job_1", 0) {
			if forebay.CodeOf(err) != forebay.CodePayloadTooLarge {
				t.Errorf("error is %v", err)
			}
		}
	})
}

// Deltas are asked for and passed on between events, and are no events themselves.
func TestDeltas(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("deltas") != "true" {
			t.Errorf("the query is %q", r.URL.RawQuery)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		writeEvent(w, 1, forebay.StatusRunning)
		fmt.Fprint(w, "event: delta\ndata: {\"job_id\":\"job_1\",\"generation\":1,\"attempt\":2,\"offset\":3,\"text\":\"flüstern\\n\"}\n\nevent: delta\ndata: {\n\n")
		writeEvent(w, 2, forebay.StatusSucceeded)
	})
	var seen []string
	for e, err := range c.EventsAndDeltas(t.Context(), "job_1", 0, func(d forebay.Delta) {
		seen = append(seen, fmt.Sprintf("%d/%d@%d %s", d.Generation, d.Attempt, d.Offset, d.Text))
	}) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, fmt.Sprint(e.Number))
	}
	if got := strings.Join(seen, ","); got != "1,1/2@3 flüstern\n,2" {
		t.Errorf("seen %q", got)
	}
}
