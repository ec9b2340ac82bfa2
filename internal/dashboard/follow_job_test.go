package dashboard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// overJob is an API with one job, which is over. Somebody redrives it after its events have ended
// and before anybody listens to the feed, which therefore tells nothing of it.
type overJob struct {
	mu       sync.Mutex
	redriven bool
	followed chan struct{} // closed when the events of the next generation are asked for
}

func (o *overJob) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	redriven := o.redriven
	o.mu.Unlock()
	switch r.URL.Path {
	case "/v1/jobs/job_1/history":
		last := 1
		if redriven {
			last = 2
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("after") == fmt.Sprint(last) {
			_, _ = io.WriteString(w, `{"items":[],"next_cursor":""}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"items":[{"number":%d,"type":"job.event","status":"pending"}],"next_cursor":""}`, last)
	case "/v1/jobs/job_1/events":
		if !redriven {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		close(o.followed)
		<-r.Context().Done()
	case "/v1/events":
		o.mu.Lock()
		o.redriven = true
		o.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		http.NotFound(w, r)
	}
}

// A page follows the next generation of a job that was redriven just before the page listened.
func TestARedriveBeforeAPageListensIsSeen(t *testing.T) {
	o := &overJob{followed: make(chan struct{})}
	up := httptest.NewServer(o)
	defer up.Close()
	api, err := client.New(client.Options{BaseURL: up.URL, RetryTime: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		followJob(ctx, &kit.Request{Client: api}, "job_1", changed, make(chan forebay.Delta))
	}()
	select {
	case <-o.followed:
	case <-ended:
		t.Error("the page does not follow the next generation")
	}
	stop()
	<-ended
	if len(changed) == 0 {
		t.Error("the page is not told to look again")
	}
}
