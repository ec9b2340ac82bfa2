package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/embedded"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/server"
)

// What the clients of callers share.
const (
	callersPerSecond = 40 // calls that the quota allows, if each uses all that it asks for
	bigCallers       = 800
	smallCallers     = 200
)

// Callers measures synchronous calls of many clients that share a small quota.
func Callers(ctx context.Context, b *measure.Bench) (t measure.Table, err error) {
	warm, measured := 60*time.Second, time.Duration(b.Size(180, 60))*time.Second
	t = measure.Table{
		Title: "Many synchronous clients and a small quota",
		Text: fmt.Sprintf(`%d clients of one tenant and %d of another call POST /v1/chat/completions, each again as soon as it is answered. One
deployment takes %d such calls a second, and more if they use less than they ask for. It is a token bucket as OpenAI's, simulated in a process of
its own. Each tenant's fair share is half of the calls that were answered. So a call should take as many seconds as its tenant has clients for
each call of that share. A minute passes before %v are measured. Refused: a 429 from Forebay to its client. Upstream 429: those that the deployment gave to Forebay.`,
			bigCallers, smallCallers, callersPerSecond, measured),
		Columns: []string{"calls", "p50 s", "p99 s", "fair s", "refused %", "upstream 429 %"},
	}
	q := serving.SimulatedQuota{Name: "shared", Kind: modelsim.KindOpenAI, TokensPerMinute: callersPerSecond * 60 * fairCost}
	simulator, err := serving.StartSimulator(ctx, q)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, simulator.Close()) }()
	keys := map[string]string{}
	e, err := embedded.StartAs(ctx, b, b.SQLite(), func(o *server.Options) {
		d := simulator.Configured(q)
		d.APIKey = "any"
		o.Role, o.Listen = server.RoleAll, "127.0.0.1:0"
		o.Deployments, o.Models = []server.Deployment{d}, map[string]server.Model{"chat": server.InOrder(d.Name)}
		err = makeKeys(ctx, o.Database, keys)
	})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	if err := simulator.Restart(ctx); err != nil {
		return t, err
	}
	url := "http://" + e.Addr(ctx).String() + "/v1/chat/completions"
	begun := time.Now()
	results := map[string]*called{bigTenant: {}, smallTenant: {}}
	c := serving.NewClient()
	defer c.CloseIdleConnections()
	until, stop := context.WithDeadline(ctx, begun.Add(warm+measured))
	defer stop()
	var all sync.WaitGroup
	for tenant, n := range map[string]int{bigTenant: bigCallers, smallTenant: smallCallers} {
		for range n {
			all.Go(func() { results[tenant].loop(until, c, url, keys[tenant], begun.Add(warm)) })
		}
	}
	all.Wait()
	stats, err := simulator.Stats(ctx)
	if err != nil {
		return t, err
	}
	upstream := stats.Deployments[q.Name]
	share := 100 * float64(serving.Refused(upstream)) / float64(max(upstream.Calls, 1))
	for tenant, n := range map[string]int{bigTenant: bigCallers, smallTenant: smallCallers} {
		r := results[tenant]
		if len(r.took) == 0 || r.err != nil {
			return t, fmt.Errorf("%s: %d calls, %w", tenant, len(r.took), r.err)
		}
		slices.Sort(r.took)
		fair := float64(n) / (float64(len(results[bigTenant].took)+len(results[smallTenant].took)) / measured.Seconds() / 2)
		p99 := measure.Percentile(r.took, 0.99) / 1000
		t.Rows = append(t.Rows, measure.Row{Name: fmt.Sprintf("the tenant with %d clients", n), Samples: []measure.Sample{{
			"calls": float64(len(r.took)), "p50 s": measure.Percentile(r.took, 0.5) / 1000, "p99 s": p99, "fair s": fair,
			"refused %": 100 * float64(r.refused) / float64(len(r.took)+r.refused), "upstream 429 %": share,
		}}})
		t.Expect(fmt.Sprintf("p99 of the %d clients as a share of what fair share says", n), p99/fair, "≤", 1.3)
	}
	slices.SortFunc(t.Rows, func(a, b measure.Row) int { return strings.Compare(b.Name, a.Name) })
	t.Expect("429s of the deployment in %", share, "≤", 0.5)
	return t, nil
}

// makeKeys makes a key for each tenant of callers.
func makeKeys(ctx context.Context, database string, keys map[string]string) error {
	admin, err := server.OpenKeys(ctx, database)
	if err != nil {
		return err
	}
	for _, tenant := range []string{bigTenant, smallTenant} {
		made, err := admin.Create(ctx, tenant, []forebay.Scope{forebay.ScopeSubmit, forebay.ScopeRead}, nil, forebay.Budget{})
		if err != nil {
			return errors.Join(err, admin.Close())
		}
		keys[tenant] = made.Key
	}
	return admin.Close()
}

// called is what became of a tenant's calls.
type called struct {
	mu      sync.Mutex
	took    []time.Duration
	refused int
	err     error
}

// loop calls again and again, and notes the calls that begin after a time and end in time.
func (r *called) loop(ctx context.Context, c serving.Client, url, key string, from time.Time) {
	body := fmt.Appendf(nil, `{"model":"chat",%s`, fairInput[1:])
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err == nil {
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+key)
			began := time.Now()
			_, err = c.Send(req)
			if ctx.Err() != nil {
				return
			}
			var status *serving.StatusError
			r.mu.Lock()
			switch measured := began.After(from); {
			case err == nil && measured:
				r.took = append(r.took, time.Since(began))
			case errors.As(err, &status) && status.Code == http.StatusTooManyRequests:
				if err = nil; measured {
					r.refused++
				}
			}
			r.mu.Unlock()
		}
		if err != nil {
			r.mu.Lock()
			r.err = err
			r.mu.Unlock()
			return
		}
	}
}
