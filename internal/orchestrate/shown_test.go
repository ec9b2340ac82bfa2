package orchestrate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	bounded "github.com/forebayhq/forebay/internal/memory"
)

// What a caller is shown of an instance counts in the memory of the call, though no value of it is
// large: a history may have 256 MiB.
func TestWhatIsShownCountsInTheMemoryOfTheCall(t *testing.T) {
	onBoth(t, func(t *testing.T, where db.Options) {
		const steps, size = 8, 16 << 10
		r := NewRegistry()
		add(t, r, "step", func(context.Context, string) (any, error) { return nil, errors.New(strings.Repeat("x", size)) })
		addOrchestrator(t, r, "long", func(ctx *task.WorkflowContext) (any, error) {
			for range steps {
				_ = activity(ctx, "step", strings.Repeat("x", size), forebay.RetryPolicy{MaxAttempts: 2, First: time.Millisecond}).Await(nil) // it fails
			}
			return nil, nil
		})
		p := run(t, where, Options{Registry: r})
		id := p.start(t, StartRequest{Name: "long"})
		p.ends(t, id, forebay.OrchestrationCompleted)
		shown := map[string]func(context.Context) (int, error){
			"history": func(ctx context.Context) (int, error) {
				events, err := p.History(ctx, tenant, id)
				return len(events), err
			},
			"attempts": func(ctx context.Context) (int, error) {
				attempts, err := p.Attempts(ctx, tenant, id)
				return len(attempts), err
			},
		}
		for what, least := range map[string]int64{"history": 2 * 2 * steps * size, "attempts": 2 * steps * forebay.MaxErrorMessageBytes} {
			claim := bounded.New(16 << 20).Claim(tenant)
			n, err := shown[what](bounded.With(t.Context(), claim))
			if held := claim.Held(); err != nil || n < 2*steps || held < least {
				t.Errorf("%s: %d rows count as %d bytes: %v", what, n, held, err)
			}
		}
	})
}
