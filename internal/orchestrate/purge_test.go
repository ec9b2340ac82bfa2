package orchestrate

import (
	"context"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
)

func TestPurgeExpired(t *testing.T) {
	r := NewRegistry()
	addOrchestrator(t, r, "waiting", waiting)
	addOrchestrator(t, r, "nothing", func(*task.WorkflowContext) (any, error) { return nil, nil })
	inBubble(t, func(t *testing.T, p *process) {
		p.start(t, StartRequest{Name: "waiting", ID: "open"})
		for range 450 {
			p.start(t, StartRequest{Name: "nothing"})
		}
		last := p.start(t, StartRequest{Name: "nothing", ID: "old"})
		p.ends(t, last, forebay.OrchestrationCompleted)
		<-time.After(2 * time.Hour)
		p.ends(t, p.start(t, StartRequest{Name: "nothing", ID: "young"}), forebay.OrchestrationCompleted)
		purge := func(want int) {
			t.Helper()
			if n, err := p.PurgeExpired(context.Background(), time.Hour, time.Hour); err != nil || n != want {
				t.Errorf("purged %d, not %d: %v", n, want, err)
			}
		}
		purge(451)
		purge(0) // this hour's turn was taken
		for _, id := range []string{"open", "young"} {
			if _, err := p.Get(t.Context(), tenant, id); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	})(r, Options{})
}
