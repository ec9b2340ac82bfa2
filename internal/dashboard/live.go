package dashboard

import (
	"context"
	"io"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

const (
	// tick is how often an open page is told to look again, whatever happened.
	tick = 5 * time.Second
	// endedEvent tells a page that its session is over.
	endedEvent = "event: ended\ndata:\n\n"
	// changeEvent tells a page to look again.
	changeEvent = "event: change\ndata:\n\n"
)

// live answers GET /live: a stream of server-sent events that says when a page is to be fetched
// again. It carries no data, so it needs no rights of its own.
func (d *Dashboard) live(r *kit.Request) error {
	draining, leave, err := r.Wait()
	if err != nil {
		return err
	}
	defer leave()
	header := r.Writer.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no")
	r.Begun = true
	send := func(event string) error {
		if _, err := io.WriteString(r.Writer, event); err != nil {
			return err
		}
		return r.Flush()
	}
	if err := send("retry: 2000\n\n"); err != nil {
		return err
	}
	timer := time.NewTicker(tick)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if err := send(changeEvent); err != nil {
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
