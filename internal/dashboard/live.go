package dashboard

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
	"github.com/forebayhq/forebay/internal/signin"
)

const (
	// tick is how often an open page is told to look again, whatever happened: not everything
	// that pages show tells of its changes.
	tick = 5 * time.Second
	// together is how long changes gather before a page is told of them.
	together = time.Second
	// checkEvery is the least time between two looks of a stream whether its session counts. It
	// looks before it sends something, so at every tick at the latest.
	checkEvery = time.Second
	// endedEvent tells a page that its session is over.
	endedEvent = "event: ended\ndata:\n\n"
	// changeEvent tells a page to look again.
	changeEvent = "event: change\ndata:\n\n"
)

// feedOf is what a page wants to hear of: the job that it shows, or things of a kind, or how
// many jobs went on.
func feedOf(r *kit.Request) forebay.FeedFilter {
	f := forebay.FeedFilter{AllTenants: r.AllTenants()}
	if id := jobOf(r); id != "" {
		f.Jobs = []string{id}
		return f
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(r.Query("page"), "/"), "/")
	switch {
	case first == "orchestrations" || first == "workflows":
		f.Kinds = []forebay.FeedKind{forebay.FeedOrchestration}
	case first == "batches":
		f.Kinds = []forebay.FeedKind{forebay.FeedBatch}
	case first == "responses":
		f.Kinds = []forebay.FeedKind{forebay.FeedResponse}
	case first == "deployments" && r.Operator():
		f.Kinds = []forebay.FeedKind{forebay.FeedDeployment}
	default:
		f.Sums = true
	}
	return f
}

// jobOf is the id of the job whose page follows, or "".
func jobOf(r *kit.Request) string {
	id, _ := strings.CutPrefix(r.Query("page"), "/jobs/")
	if id == r.Query("page") || strings.Contains(id, "/") {
		return ""
	}
	return id
}

// tell says that something has changed, unless that was said already.
func tell(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// follow tells changed of what happens, until ctx ends. If nobody more may listen, the page
// looks at every tick.
func follow(ctx context.Context, r *kit.Request, f forebay.FeedFilter, changed chan<- struct{}) {
	for item, err := range r.Client.Follow(ctx, f) {
		switch {
		case err != nil:
			return
		case item.Sums != nil && len(item.Sums.Counts) == 0:
			continue
		}
		tell(changed)
	}
}

// stillSignedIn returns signin.ErrSignedOut if the session of a request has ended meanwhile. What
// ends with a key ends the request's context.
func (d *Dashboard) stillSignedIn(r *kit.Request) error {
	if r.Open {
		return nil
	}
	_, found, err := d.SignedIn(r.Request)
	if err == nil && !found {
		return signin.ErrSignedOut
	}
	return nil // a database that does not answer ends no stream
}

// live answers GET /live: a stream of server-sent events that says when a page is to be fetched
// again. On the page of a job it also carries what the running call writes.
func (d *Dashboard) live(r *kit.Request) (err error) {
	draining, leave, err := r.Wait()
	if err != nil {
		return err
	}
	defer leave()
	header := r.Writer.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no")
	r.Begun = true
	checked := time.Now()
	send := func(event string) error {
		if time.Since(checked) >= checkEvery {
			if err := d.stillSignedIn(r); err != nil {
				return err
			}
			checked = time.Now()
		}
		if _, err := io.WriteString(r.Writer, event); err != nil {
			return err
		}
		return r.Flush()
	}
	if err := send("retry: 2000\n\n"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(r.Context())
	changed, written, ended := make(chan struct{}, 1), make(chan forebay.Delta), make(chan struct{})
	go func() {
		defer close(ended)
		if id := jobOf(r); id != "" && !r.Withheld() {
			followJob(ctx, r, id, changed, written)
			return
		}
		follow(ctx, r, feedOf(r), changed)
	}()
	defer func() {
		stop()
		<-ended
	}()
	timer := time.NewTimer(tick)
	defer timer.Stop()
	defer func() {
		if errors.Is(err, signin.ErrSignedOut) { // nobody's page gets more than that
			_, _ = io.WriteString(r.Writer, endedEvent)
			err = r.Flush()
		}
	}()
	sent, news := time.Now(), changed
	for {
		select {
		case <-news:
			timer.Reset(max(together-time.Since(sent), 0))
			news = nil // until the page was told
		case <-timer.C:
			if err := send(changeEvent); err != nil {
				return err
			}
			sent, news = time.Now(), changed
			timer.Reset(tick)
		case d := <-written:
			if err := send(deltaEvent(d)); err != nil {
				return err
			}
		case <-draining:
			return nil
		case <-r.Context().Done():
			if forebay.CodeOf(context.Cause(r.Context())) == forebay.CodeUnauthorized {
				return send(endedEvent)
			}
			return nil
		}
	}
}
