//go:build unix

package kills_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// TestBudgetHoldsThroughCrashes runs 1,000 jobs on a budget that fits some 300 of them. It kills
// the processes that call, cuts answers off and cancels jobs. The spending never exceeds the
// budget, and it covers everything that was billed. In the end nothing is reserved. The rest
// waits, and continues when the budget is raised.
func TestBudgetHoldsThroughCrashes(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgresql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newSpender(t)
			if kind == "sqlite" {
				b.options.Database = servertest.DatabaseFile(t)
			} else {
				b.options.Database, b.options.Blob = dbtest.Postgres(t), filepath.Join(t.TempDir(), "blobs")
				b.workers = 3
			}
			b.run()
		})
	}
}

const (
	spenderJobs   = 1000
	spenderFits   = 300
	spenderWords  = 10      // of a prompt; and of an answer
	spenderTokens = 16 + 13 // that the model counts: of a prompt and of its answer
	spenderCost   = spenderTokens * spenderPrice
	spenderPrice  = forebay.Dollar / 1000 // of a token
	spenderBudget = spenderFits * spenderCost
)

// spender is one run. Processes are one that does all, or one with the API and several workers.
type spender struct {
	*testing.T
	options servertest.ProcessOptions
	workers int
	model   *modelsim.TestServer
	billed  atomic.Int64 // tokens
	running []*servertest.Process
	front   atomic.Pointer[client.Client]
	jobs    []string
}

func newSpender(t *testing.T) *spender {
	b := &spender{T: t}
	b.model = modelsim.StartTest(func(call modelsim.Call) modelsim.Reply {
		b.billed.Add(spenderTokens)
		r := modelsim.Reply{Delay: 20 * time.Millisecond, Text: strings.TrimSpace(strings.Repeat("word ", spenderWords))}
		n, err := strconv.Atoi(call.Marker)
		if err == nil && n%50 == 7 && call.Number == 1 {
			r.Body = []byte(`{"choices":[{"index":0,"mess`) // and no more: what it used nobody tells
		}
		return r
	})
	t.Cleanup(b.model.Close)
	limit := spenderBudget.Dollars()
	b.options = servertest.ProcessOptions{
		Endpoint: b.model.URL(), Shutdown: time.Second, Price: forebay.Price{Input: 1000, Output: 1000}, MaxOutput: 2 * spenderWords,
		Tenants: map[string]server.Tenant{forebay.DefaultTenant: {Budget: server.Budget{MonthlyUSD: &limit}}},
		Queue: server.Queue{Concurrency: 8, LockDuration: time.Second, MaxDeliveryCount: 1000,
			Retry: server.Retry{First: 20 * time.Millisecond, Max: 100 * time.Millisecond, Attempts: 100, Concurrency: 4, Budget: 0.5}},
	}
	return b
}

func (b *spender) run() {
	b.launch()
	b.submit()
	var others sync.WaitGroup
	others.Go(func() { b.cancelSome() })
	for _, calls := range []int{40, 90, 140} {
		if err := b.model.Await(b.Context(), func(s modelsim.Stats) bool { return int(s.Calls) >= calls }); err != nil {
			b.Fatal(err)
		}
		b.killCaller(calls)
	}
	others.Wait()
	b.awaitTenant("nothing is held and the rest waits", func(t forebay.Tenant) bool {
		return t.Waiting > 0 && t.Usage[1].HeldUSD == 0 && t.Usage[1].HeldTokens == 0 && b.left() == int(t.Waiting)
	})
	spent := b.spent()
	if spent > spenderBudget {
		b.Errorf("%s USD of %s are spent", spent, spenderBudget)
	}
	done := 0
	for _, id := range b.jobs {
		job := b.job(id)
		switch {
		case job.Status == forebay.StatusSucceeded:
			done++
		case !job.Status.Terminal() && (job.WaitingFor == nil || *job.WaitingFor != forebay.WaitBudget || job.Status == forebay.StatusRunning):
			b.Errorf("job %s is %s and waits for %v", id, job.Status, job.WaitingFor)
		}
	}
	b.Logf("%d of %d jobs are done for %s of %s USD; %s were billed", done, len(b.jobs), spent, spenderBudget, b.bill())
	if done < spenderFits/3 || done > spenderFits {
		b.Errorf("%d jobs are done; %d fit without any loss", done, spenderFits)
	}
	much := 100 * spenderBudget
	if _, err := b.api().SetBudget(b.Context(), forebay.DefaultTenant, forebay.Budget{MonthlyUSD: &much}); err != nil {
		b.Fatal(err)
	}
	b.awaitTenant("all is done", func(t forebay.Tenant) bool { return t.Waiting == 0 && b.left() == 0 })
	b.awaitTenant("nothing is held", func(t forebay.Tenant) bool { return t.Usage[1].HeldUSD == 0 && t.Usage[1].HeldTokens == 0 })
	if spent := b.spent(); spent < b.bill() {
		b.Errorf("%s USD are counted, less than the %s that were billed", spent, b.bill())
	}
	for _, id := range b.jobs {
		if job := b.job(id); job.Status != forebay.StatusSucceeded && job.Status != forebay.StatusCancelled {
			b.Errorf("job %s is %s in the end: %v", id, job.Status, job.Error)
		}
	}
	for _, p := range b.running {
		p.Stop(b.T)
	}
}

// launch starts the first process, which has the API, and those that only work.
func (b *spender) launch() {
	b.start(0)
	for i := range b.workers {
		b.start(1 + i)
	}
}

func (b *spender) start(i int) {
	o := b.options
	switch {
	case b.workers > 0 && i == 0:
		o.Role = server.RoleAPI
	case b.workers > 0:
		o.Role, o.Tenants = server.RoleWorker, b.options.Tenants
	}
	p := servertest.Launch(b.T, o)
	if i == len(b.running) {
		b.running = append(b.running, nil)
	}
	b.running[i] = p
	if i > 0 {
		return
	}
	api, err := client.New(client.Options{BaseURL: p.MustListen(b)})
	if err != nil {
		b.Fatal(err)
	}
	b.front.Store(api)
}

// killCaller kills a process that calls, and starts another.
func (b *spender) killCaller(n int) {
	i := 0
	if b.workers > 0 {
		i = 1 + n%b.workers
	}
	b.running[i].Kill()
	b.start(i)
}

func (b *spender) submit() {
	requests := func(yield func(forebay.SubmitRequest) bool) {
		for n := range spenderJobs {
			prompt, err := json.Marshal(fmt.Sprintf("[[%d]]", n) + strings.Repeat(" word", spenderWords-1))
			if err != nil || !yield(forebay.SubmitRequest{Task: "chat", Input: prompt, IdempotencyKey: strconv.Itoa(n)}) {
				return
			}
		}
	}
	for result, err := range b.api().SubmitBulk(b.Context(), requests) {
		if err != nil || result.Error != nil {
			b.Fatal(err, result.Error)
		}
		b.jobs = append(b.jobs, result.Job.ID)
	}
}

// api talks to the process that has the API now.
func (b *spender) api() *client.Client { return b.front.Load() }

// cancelSome cancels jobs, early ones that may be called right now and late ones that will wait.
// What is asked of a server that is killed meanwhile comes to nothing.
func (b *spender) cancelSome() {
	for n := 5; n < len(b.jobs); n += 25 {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		_, _ = b.api().Cancel(ctx, b.jobs[n])
		cancel()
		if err := b.model.Await(b.Context(), func(s modelsim.Stats) bool { return int(s.Calls) >= n/5 }); err != nil {
			return
		}
	}
}

func (b *spender) job(id string) forebay.Job {
	b.Helper()
	job, err := b.api().Get(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	return job
}

// left is how many jobs are not over.
func (b *spender) left() (n int) {
	b.Helper()
	for job, err := range b.api().List(b.Context(), forebay.JobFilter{Limit: 500, Status: []forebay.Status{forebay.StatusQueued, forebay.StatusScheduled, forebay.StatusRunning, forebay.StatusRetrying}}) {
		if err != nil {
			b.Fatal(err)
		}
		if job.ID != "" {
			n++
		}
	}
	return n
}

func (b *spender) tenant() forebay.Tenant {
	b.Helper()
	tenant, err := b.api().Tenant(b.Context(), forebay.DefaultTenant)
	if err != nil {
		b.Fatal(err)
	}
	return tenant
}

func (b *spender) spent() forebay.Money { return b.tenant().Usage[1].CostUSD }

func (b *spender) bill() forebay.Money { return forebay.Money(b.billed.Load()) * spenderPrice }

// awaitTenant waits until it is so, and sees to it that the budget is kept meanwhile.
func (b *spender) awaitTenant(what string, so func(forebay.Tenant) bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		tenant := b.tenant()
		if use := tenant.Usage[1]; use.CostUSD+use.HeldUSD > *tenant.Budget.MonthlyUSD {
			b.Fatalf("%s USD are spent and %s held of %s", use.CostUSD, use.HeldUSD, *tenant.Budget.MonthlyUSD)
		}
		if so(tenant) {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			b.Fatalf("waited in vain until %s: %+v, %d jobs are left", what, tenant, b.left())
		}
	}
}
