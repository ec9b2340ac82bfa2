package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

const (
	fairPerMinute = 3_000_000 // tokens
	fairCost      = 400       // tokens of each job
	fairRate      = fairPerMinute / 60 / fairCost
	fewJobs       = 10
	overloaded    = 2 // times the rate

	bigTenant   = "big"
	smallTenant = "small"
)

// fairness measures how long jobs wait beside others for the same deployment.
func fairness(ctx context.Context, b *bench) (t table, err error) {
	many := b.size(10_000, 4000)
	overload := time.Duration(b.size(90, 50)) * time.Second
	lower := []int{8, 7}[:b.size(2, 1)]
	t = table{
		title: "Fair share",
		text: fmt.Sprintf(`In process, on SQLite, one queue with 256 places and one deployment of %s tokens a minute, simulated in a process of its own:
%d jobs of %d tokens a second. Wait: from the submit until the job's call begins. One tenant submits %s jobs, and two seconds
later %d more come: of nobody else, of the same tenant (what it is without fair share), of another one. Then jobs of priority 9
come for %v at %d times the rate that the quota allows, and ten seconds after the first %d of each lower one that is shown.`,
			format(fairPerMinute), fairRate, fairCost, format(float64(many)), fewJobs, overload, overloaded, fewJobs),
		columns: []string{"jobs", "begun", "wait p50 s", "wait p99 s", "longest wait s"},
	}
	alone := row{"the few, alone", nil}
	if err := beside(ctx, b, 0, smallTenant, nil, &alone); err != nil {
		return t, err
	}
	behind, besideMany := row{"the few, behind the tenant's own many", nil}, row{"the few, beside another tenant's many", nil}
	manyAlone, manyBeside := row{"the many, with those few behind them", nil}, row{"the many, beside another tenant's few", nil}
	if err := beside(ctx, b, many, bigTenant, &manyAlone, &behind); err != nil {
		return t, err
	}
	if err := beside(ctx, b, many, smallTenant, &manyBeside, &besideMany); err != nil {
		return t, err
	}
	t.rows = []row{alone, behind, besideMany, manyAlone, manyBeside}
	priorities, err := byPriority(ctx, b, overload, lower)
	if err != nil {
		return t, err
	}
	t.rows = append(t.rows, priorities...)
	t.expect("p99 wait of the few beside another tenant's many, in s", t.median(besideMany.name, "wait p99 s"), "<", 2)
	t.expect("the many's longest wait, with another tenant's few / without", t.median(manyBeside.name, "longest wait s")/t.median(manyAlone.name, "longest wait s"), "<", 1.1)
	for i, r := range priorities[1:] {
		t.expect("begun under overload, share of "+r.name, t.median(r.name, "begun")/t.median(r.name, "jobs"), "≥", 1)
		t.expect("its longest wait in s, where a job gains a level in 30 s", t.median(r.name, "longest wait s"), "<", float64(30*(forebay.MaxPriority-lower[i])+5))
	}
	t.note("load average after the run: %s", firstLine("/proc/loadavg"))
	return t, nil
}

// fairRun is a server with one deployment.
type fairRun struct {
	*embedded
	simulator *simulator
}

func startFair(ctx context.Context, b *bench) (*fairRun, error) {
	q := simulatedQuota{name: "shared", tokensPerMinute: fairPerMinute}
	simulator, err := startSimulator(ctx, q)
	if err != nil {
		return nil, err
	}
	e, err := startEmbeddedAs(ctx, b, b.sqlite(), func(o *server.Options) {
		d := simulator.configured(q)
		d.APIKey = "any"
		o.Deployments, o.Models = []server.Deployment{d}, map[string]server.Model{"chat": server.InOrder(d.Name)}
		o.Queues[forebay.DefaultQueue] = server.Queue{Concurrency: 256}
	})
	if err != nil {
		return nil, errors.Join(err, simulator.close())
	}
	return &fairRun{e, simulator}, simulator.restart(ctx)
}

func (r *fairRun) close() error { return errors.Join(r.embedded.stop(), r.simulator.close()) }

// fairInput is charged fairCost.
var fairInput = []byte(fmt.Sprintf(`{"messages":[{"role":"user","content":%s}],"max_tokens":200}`, quoted((fairCost-200-3)*4)))

// send submits jobs and returns their ids.
func (r *fairRun) send(ctx context.Context, tenant string, priority, jobs int) ([]string, error) {
	ids := make([]string, jobs)
	return ids, inParallel(min(workers, max(jobs, 1)), jobs, func(i int) error {
		job, err := r.Submit(ctx, tenant, forebay.SubmitRequest{Task: "chat", Input: fairInput, Priority: &priority})
		ids[i] = job.ID
		return err
	})
}

// waited returns a sample of the jobs' waits, once all have ended, or as it is at a time.
func (r *fairRun) waited(ctx context.Context, tenant string, ids []string, until time.Duration) (sample, error) {
	took := make([]time.Duration, len(ids))
	err := inParallel(4, len(ids), func(i int) error {
		job, err := r.Wait(ctx, tenant, ids[i], until)
		switch {
		case err != nil:
			return err
		case job.Status == forebay.StatusFailed:
			return fmt.Errorf("a job failed: %+v", job.Error)
		case job.StartedAt == nil && until > 0:
			return fmt.Errorf("a job did not begin within %v", until)
		case job.StartedAt != nil:
			took[i] = max(job.StartedAt.Sub(job.CreatedAt), 1)
		}
		return nil
	})
	took = slices.DeleteFunc(took, func(d time.Duration) bool { return d == 0 })
	slices.Sort(took)
	s := sample{"jobs": float64(len(ids)), "begun": float64(len(took))}
	if len(took) > 0 {
		s["wait p50 s"], s["wait p99 s"], s["longest wait s"] = percentile(took, 0.5)/1000, percentile(took, 0.99)/1000, percentile(took, 1)/1000
	}
	return s, err
}

// beside submits a tenant's many jobs, and the few of a tenant after them.
func beside(ctx context.Context, b *bench, many int, tenant string, ofMany, ofFew *row) (err error) {
	r, err := startFair(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	before, err := r.send(ctx, bigTenant, forebay.DefaultPriority, many)
	if err == nil && many > 0 {
		err = sleep.For(ctx, 2*time.Second)
	}
	if err != nil {
		return err
	}
	few, err := r.send(ctx, tenant, forebay.DefaultPriority, fewJobs)
	if err != nil {
		return err
	}
	s, err := r.waited(ctx, tenant, few, 5*time.Minute)
	if err != nil {
		return err
	}
	ofFew.samples = append(ofFew.samples, s)
	if many == 0 {
		return nil
	}
	s, err = r.waited(ctx, bigTenant, before, 5*time.Minute)
	ofMany.samples = append(ofMany.samples, s)
	return err
}

// byPriority submits high-priority jobs faster than the quota allows, beside a few jobs of lower
// priorities.
func byPriority(ctx context.Context, b *bench, lasting time.Duration, lower []int) (rows []row, err error) {
	r, err := startFair(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	of := map[int][]string{}
	high := make([]string, int(lasting.Seconds()*fairRate*overloaded))
	err = paced(ctx, fairRate*overloaded, len(high), func(i int, _ time.Time) error {
		ids, err := r.send(ctx, bigTenant, forebay.MaxPriority, 1)
		high[i] = ids[0]
		if err == nil && i == 10*fairRate*overloaded {
			for _, priority := range lower {
				if of[priority], err = r.send(ctx, bigTenant, priority, fewJobs); err != nil {
					return err
				}
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	of[forebay.MaxPriority] = high
	for _, priority := range append([]int{forebay.MaxPriority}, lower...) {
		s, err := r.waited(ctx, bigTenant, of[priority], 0)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{fmt.Sprintf("priority %d", priority), []sample{s}})
	}
	return rows, nil
}
