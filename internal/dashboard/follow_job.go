package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// followJob tells changed of the events of a job, and passes on what its running call writes,
// until ctx ends. A job that is over may be redriven: then it follows the next generation. If
// nobody more may listen, the page looks at every tick.
func followJob(ctx context.Context, r *kit.Request, id string, changed chan<- struct{}, written chan<- forebay.Delta) {
	pass := func(d forebay.Delta) {
		select {
		case written <- d:
		case <-ctx.Done():
		}
	}
	var last int64
	past, err := r.Client.EventsSoFar(ctx, id, 0)
	if err != nil {
		return
	}
	if len(past) > 0 {
		last = past[len(past)-1].Number // the page shows them
	}
	for {
		for event, err := range r.Client.EventsAndDeltas(ctx, id, last, pass) {
			if err != nil {
				return
			}
			last = event.Number
			tell(changed)
		}
		if !nextGeneration(ctx, r, id, last) {
			return
		}
		tell(changed)
	}
}

// nextGeneration waits for an event after the last one of a job that is over. It listens first and
// looks then, so that no event between the two is missed.
func nextGeneration(ctx context.Context, r *kit.Request, id string, last int64) bool {
	feed, err := r.Client.Open(ctx, "/v1/events", url.Values{"job": {id}})
	if err != nil {
		return false
	}
	defer feed.Close()
	missed, err := r.Client.EventsSoFar(ctx, id, last)
	if err != nil || len(missed) > 0 {
		return err == nil
	}
	lines := bufio.NewScanner(feed)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "event:") { // what it was, the job tells
			return true
		}
	}
	return false
}

// deltaEvent is a part of what a call writes, for the script of the page. The script shows it as
// text. Control characters and marks that turn the direction of text are replaced here. So the
// text may be shorter or longer than the bytes that it stands for.
func deltaEvent(d forebay.Delta) string {
	data, err := json.Marshal(struct {
		Call   string `json:"call"` // another call begins anew
		Offset int    `json:"offset"`
		End    int    `json:"end"`
		Text   string `json:"text"`
	}{fmt.Sprintf("%d.%d", d.Generation, d.Attempt), d.Offset, d.Offset + len(d.Text), kit.Clean(d.Text)})
	if err != nil { // numbers and a text
		return ""
	}
	return "event: delta\ndata: " + string(data) + "\n\n"
}
