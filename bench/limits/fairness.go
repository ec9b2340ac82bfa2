package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/embedded"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
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

// Fairness measures how long jobs wait beside others for the same deployment.
func Fairness(ctx context.Context, b *measure.Bench) (t measure.Table, err error) {
	many := b.Size(10_000, 4000)
	overload := time.Duration(b.Size(90, 50)) * time.Second
	lower := []int{8, 7}[:b.Size(2, 1)]
	t = measure.Table{
		Title: "Fair share",
		Text: fmt.Sprintf(`In process, on SQLite, one queue with 256 places and one deployment of %s tokens a minute, simulated in a process of its own:
%d jobs of %d tokens a second. Wait: from the submit until the job's call begins. One tenant submits %s jobs, and two seconds
later %d more come: of nobody else, of the same tenant (what it is without fair share), of another one. Then jobs of priority 9
come for %v at %d times the rate that the quota allows, and ten seconds after the first %d of each lower one that is shown.`,
			measure.Format(fairPerMinute), fairRate, fairCost, measure.Format(float64(many)), fewJobs, overload, overloaded, fewJobs),
		Columns: []string{"jobs", "begun", "wait p50 s", "wait p99 s", "longest wait s"},
	}
	alone := measure.Row{Name: "the few, alone", Samples: nil}
	if err := beside(ctx, b, 0, smallTenant, nil, &alone); err != nil {
		return t, err
	}
	behind, besideMany := measure.Row{Name: "the few, behind the tenant's own many", Samples: nil}, measure.Row{Name: "the few, beside another tenant's many", Samples: nil}
	manyAlone, manyBeside := measure.Row{Name: "the many, with those few behind them", Samples: nil}, measure.Row{Name: "the many, beside another tenant's few", Samples: nil}
	if err := beside(ctx, b, many, bigTenant, &manyAlone, &behind); err != nil {
		return t, err
	}
	if err := beside(ctx, b, many, smallTenant, &manyBeside, &besideMany); err != nil {
		return t, err
	}
	t.Rows = []measure.Row{alone, behind, besideMany, manyAlone, manyBeside}
	priorities, err := byPriority(ctx, b, overload, lower)
	if err != nil {
		return t, err
	}
	t.Rows = append(t.Rows, priorities...)
	t.Expect("p99 wait of the few beside another tenant's many, in s", t.Median(besideMany.Name, "wait p99 s"), "<", 2)
	t.Expect("the many's longest wait, with another tenant's few / without", t.Median(manyBeside.Name, "longest wait s")/t.Median(manyAlone.Name, "longest wait s"), "<", 1.1)
	for i, r := range priorities[1:] {
		t.Expect("begun under overload, share of "+r.Name, t.Median(r.Name, "begun")/t.Median(r.Name, "jobs"), "≥", 1)
		t.Expect("its longest wait in s, where a job gains a level in 30 s", t.Median(r.Name, "longest wait s"), "<", float64(30*(forebay.MaxPriority-lower[i])+5))
	}
	t.Note("load average after the run: %s", measure.FirstLine("/proc/loadavg"))
	return t, nil
}

// fairRun is a server with one deployment.
type fairRun struct {
	*embedded.Server
	simulator *serving.Simulator
}

func startFair(ctx context.Context, b *measure.Bench) (*fairRun, error) {
	q := serving.SimulatedQuota{Name: "shared", TokensPerMinute: fairPerMinute}
	simulator, err := serving.StartSimulator(ctx, q)
	if err != nil {
		return nil, err
	}
	e, err := embedded.StartAs(ctx, b, b.SQLite(), func(o *server.Options) {
		d := simulator.Configured(q)
		d.APIKey = "any"
		o.Deployments, o.Models = []server.Deployment{d}, map[string]server.Model{"chat": server.InOrder(d.Name)}
		o.Queues[forebay.DefaultQueue] = server.Queue{Concurrency: 256}
	})
	if err != nil {
		return nil, errors.Join(err, simulator.Close())
	}
	return &fairRun{e, simulator}, simulator.Restart(ctx)
}

func (r *fairRun) close() error { return errors.Join(r.Server.Stop(), r.simulator.Close()) }

// fairInput is charged fairCost.
var fairInput = []byte(fmt.Sprintf(`{"messages":[{"role":"user","content":%s}],"max_tokens":200}`, measure.Quoted((fairCost-200-3)*4)))

// send submits jobs and returns their ids.
func (r *fairRun) send(ctx context.Context, tenant string, priority, jobs int) ([]string, error) {
	ids := make([]string, jobs)
	return ids, measure.InParallel(min(measure.Workers, max(jobs, 1)), jobs, func(i int) error {
		job, err := r.Submit(ctx, tenant, forebay.SubmitRequest{Task: "chat", Input: fairInput, Priority: &priority})
		ids[i] = job.ID
		return err
	})
}

// waited returns a sample of the jobs' waits, once all have ended, or as it is at a time.
func (r *fairRun) waited(ctx context.Context, tenant string, ids []string, until time.Duration) (measure.Sample, error) {
	took := make([]time.Duration, len(ids))
	err := measure.InParallel(4, len(ids), func(i int) error {
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
	s := measure.Sample{"jobs": float64(len(ids)), "begun": float64(len(took))}
	if len(took) > 0 {
		s["wait p50 s"], s["wait p99 s"], s["longest wait s"] = measure.Percentile(took, 0.5)/1000, measure.Percentile(took, 0.99)/1000, measure.Percentile(took, 1)/1000
	}
	return s, err
}

// beside submits a tenant's many jobs, and the few of a tenant after them.
func beside(ctx context.Context, b *measure.Bench, many int, tenant string, ofMany, ofFew *measure.Row) (err error) {
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
	ofFew.Samples = append(ofFew.Samples, s)
	if many == 0 {
		return nil
	}
	s, err = r.waited(ctx, bigTenant, before, 5*time.Minute)
	ofMany.Samples = append(ofMany.Samples, s)
	return err
}

// byPriority submits high-priority jobs faster than the quota allows, beside a few jobs of lower
// priorities.
func byPriority(ctx context.Context, b *measure.Bench, lasting time.Duration, lower []int) (rows []measure.Row, err error) {
	r, err := startFair(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	of := map[int][]string{}
	high := make([]string, int(lasting.Seconds()*fairRate*overloaded))
	err = measure.Paced(ctx, fairRate*overloaded, len(high), func(i int, _ time.Time) error {
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
		rows = append(rows, measure.Row{Name: fmt.Sprintf("priority %d", priority), Samples: []measure.Sample{s}})
	}
	return rows, nil
}
