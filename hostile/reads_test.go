//go:build hostile

package hostile

import (
	"context"
	"testing"
)

// One key reads all that it may while it has a long backlog.
var reads = register(Attack{Name: "reads over a backlog", Postgres: true, Target: TargetOptions{Config: settings{
	"tenants": settings{attackerTenant: settings{"concurrency": 1}},
}}, Prepare: func(t *Target) map[string]string {
	const perRequest = 10_000
	lines := bulkLines(perRequest, func(int) map[string]any { return map[string]any{"task": "chat", "input": "waits"} })
	t.admin().must(t, "POST", "/v1/tenants/"+attackerTenant+"/pause", nil, nil)
	waiting := 0
	for range size(1_000_000, 50_000) / perRequest {
		n, err := t.attacker().bulk(t.Context(), lines)
		if err != nil && waiting == 0 {
			t.Fatal(err)
		}
		waiting += n
		if n < perRequest {
			t.Logf("the server accepts no more than %d waiting jobs of one tenant", waiting)
			break
		}
	}
	last := t.attacker().call(t.Context(), "GET", "/v1/jobs?limit=1", nil)
	return map[string]string{"job": between(string(last.Body), `"id":"`, `"`)}
}, Run: func(ctx context.Context, s *Scene) error {
	p := s.Attacker()
	paths := []string{"/v1/queues", "/v1/reports/retries", "/v1/jobs/" + s.Given["job"], "/v1/jobs?limit=500", "/v1/jobs?status=queued&limit=500",
		"/v1/jobs?status=failed&limit=500", "/v1/queues/default", "/v1/jobs?correlation_id=none"}
	s.Ready()
	s.Flood(ctx, 8, func(ctx context.Context, i int) Answer { return p.call(ctx, "GET", paths[(i/8+i)%len(paths)], nil) })
	return nil
}})

func TestFloods(t *testing.T)      { runAttacks(t, floods) }
func TestPayloads(t *testing.T)    { runAttacks(t, payloads) }
func TestConnections(t *testing.T) { runAttacks(t, connections) }
func TestPublishes(t *testing.T)   { runAttacks(t, publishes) }
func TestReads(t *testing.T)       { runAttacks(t, reads) }
