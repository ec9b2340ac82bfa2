package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/raced"
)

// Actions on instances are in the audit log, without their payloads. Refused actions and those
// of the program itself are not.
func TestAudit(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	onBoth(t, func(t *testing.T, where db.Options) {
		r := NewRegistry()
		addOrchestrator(t, r, "waiting", waiting)
		addOrchestrator(t, r, "fails", func(*task.WorkflowContext) (any, error) { return nil, errors.New("secret") })
		addOrchestrator(t, r, "above", func(ctx *task.WorkflowContext) (any, error) {
			return nil, ctx.CallChildWorkflow("fails", task.WithChildWorkflowInstanceID("below")).Await(nil)
		})
		p := run(t, where, Options{Registry: r})
		secret, by := json.RawMessage(`"secret"`), forebay.WithActor(t.Context(), "key_1")
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		start := func(ctx context.Context, name, id string) {
			t.Helper()
			_, err := p.Start(ctx, tenant, StartRequest{Name: name, ID: id, Input: secret})
			must(err)
		}
		start(t.Context(), "waiting", "unheard")
		must(p.Raise(t.Context(), tenant, "unheard", "go", secret))

		start(by, "waiting", "w")
		if _, err := p.Start(by, tenant, StartRequest{Name: "waiting", ID: "w"}); forebay.CodeOf(err) != forebay.CodeConflict {
			t.Errorf("started twice: %v", err)
		}
		must(p.Raise(by, tenant, "w", "other", secret))
		must(p.Suspend(by, tenant, "w", "secret"))
		must(p.Resume(by, tenant, "w", "secret"))
		if err := p.Purge(by, tenant, "w"); forebay.CodeOf(err) != forebay.CodeConflict {
			t.Errorf("purged: %v", err)
		}
		must(p.Terminate(by, tenant, "w", "secret"))
		p.ends(t, "w", forebay.OrchestrationTerminated)
		if err := p.Raise(by, tenant, "w", "go", secret); forebay.CodeOf(err) != forebay.CodeGone {
			t.Errorf("raised: %v", err)
		}
		_, err := p.Restart(by, tenant, "w", false)
		must(err)
		other, err := p.Restart(by, tenant, "w", true)
		must(err)
		start(by, "above", "a")
		p.ends(t, "a", forebay.OrchestrationFailed)
		must(p.Rewind(by, tenant, "a", "secret"))
		p.ends(t, "a", forebay.OrchestrationFailed)
		must(p.Purge(by, tenant, "a"))
		for range 2 { // the second finds none
			_, err = p.PurgeMany(by, tenant, ListRequest{Prefix: "bel"})
			must(err)
		}
		must(p.Terminate(t.Context(), tenant, other, ""))
		p.ends(t, other, forebay.OrchestrationTerminated)
		must(p.Purge(by, tenant, other))

		entries, _, err := p.store.Audit.Entries(t.Context(), forebay.AuditFilter{}, 0, 100)
		must(err)
		slices.Reverse(entries)
		var got []string
		for _, e := range entries {
			if e.Tenant != tenant || e.Actor != "key_1" || strings.Contains(e.Detail, "secret") {
				t.Errorf("%+v", e)
			}
			got = append(got, strings.TrimSpace(e.Action+" "+e.Target+" "+e.Detail))
		}
		want := []string{
			`suspend-orchestration w`,
			`resume-orchestration w`,
			`terminate-orchestration w`,
			`restart-orchestration w {"orchestrator":"waiting"}`,
			`restart-orchestration w {"orchestrator":"waiting","new_id":"` + other + `"}`,
			`rewind-orchestration below`,
			`rewind-orchestration a`,
			`purge-orchestration a`,
			`purge-orchestrations default {"prefix":"bel"}`,
			`purge-orchestration ` + other,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if v, err := p.store.Audit.Verify(t.Context(), forebay.AuditHead{}, 1000); err != nil || !v.Intact || !v.Done {
			t.Errorf("%+v: %v", v, err)
		}
	})
}
