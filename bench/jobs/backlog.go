package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/embedded"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/server"
)

// Backlog measures the rate while many other jobs wait.
func Backlog(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	return backlogs(ctx, b, b.SQLite(), "Rate with other jobs waiting", "", peer{"Forebay", openForebay})
}

// BacklogOnPostgres measures the same on PostgreSQL, and River beside it.
func BacklogOnPostgres(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	pg, err := b.Postgres(ctx)
	if err != nil {
		return measure.Table{}, err
	}
	peers := []peer{{"Forebay", openForebay}}
	if b.Peers {
		peers = append(peers, peer{"River", func(ctx context.Context, b *measure.Bench, _ measure.Engine) (loaded, error) {
			d, err := riverPostgres(ctx, pg, riverTuned)
			return &loadedRiver{d, b, pg}, err
		}})
	}
	return backlogs(ctx, b, pg, "Rate with other jobs waiting, on PostgreSQL", `
River is the tuned one, and nobody works its other queue. Every database is vacuumed and analysed once it is filled.`, peers...)
}

// peer is who is measured on databases with waiting jobs.
type peer struct {
	name string
	open func(context.Context, *measure.Bench, measure.Engine) (loaded, error)
}

// loaded is a contender's database that jobs wait in.
type loaded interface {
	fill(ctx context.Context, how string, waiting int) error
	Live(ctx context.Context, jobs int) (measure.Sample, error)
	Stop() error
}

// The ways in which jobs wait.
const (
	present = "present" // they are not to be run now
	inLine  = "in line" // they are what the consumers get
)

const (
	waitingBytes = 128 // of input of a job that is merely present
	shareOfEmpty = "share of the empty rate"
	otherQueue   = "other"
)

// backlogs fills a database for each amount and way of waiting, and then measures all of them in
// turns.
func backlogs(ctx context.Context, b *measure.Bench, on measure.Engine, title, more string, peers ...peer) (t measure.Table, err error) {
	t = measure.Table{
		Title: title,
		Text: fmt.Sprintf(`64 producers, 64 consumers, 1 KiB, in process, on databases in which other jobs wait. Present: each with %d bytes of input,
half of them scheduled for tomorrow in the same queue, half ready in another queue whose one worker is busy. In line: ready
in the same queue with 1 KiB each, so that these are what the consumers get, while as many are added behind them.`, waitingBytes) + more,
		Columns: []string{measure.JobRate, "enqueue p50 ms", "enqueue p99 ms", shareOfEmpty, "CPU µs/job", "disk flushes/job"},
	}
	amounts := []int{10_000, 100_000, 1_000_000}
	if b.Quick {
		amounts = amounts[:2]
	}
	if b.Waiting > 0 {
		amounts = []int{b.Waiting}
	}
	var contenders []measure.Contender
	var open []loaded
	defer func() {
		for _, l := range open {
			err = errors.Join(err, l.Stop())
		}
	}()
	empty := map[string]string{} // a contender's name → its peer's with an empty database
	for _, p := range peers {
		add := func(how string, waiting int) error {
			name := fmt.Sprintf("%s, %s %s", p.name, measure.Format(float64(waiting)), how)
			l, err := p.open(ctx, b, on)
			if err != nil {
				return err
			}
			open = append(open, l)
			begun := time.Now()
			if err := l.fill(ctx, how, waiting); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintf(os.Stderr, "  %s: filled in %.0f s\n", name, time.Since(begun).Seconds())
			empty[name] = fmt.Sprintf("%s, %s %s", p.name, measure.Format(0), present)
			contenders = append(contenders, measure.Contender{Name: name, Round: func(ctx context.Context) (measure.Sample, error) { return l.Live(ctx, b.Size(10_000, 5000)) }})
			return nil
		}
		if err := add(present, 0); err != nil {
			return t, err
		}
		for _, waiting := range amounts {
			for _, how := range []string{present, inLine} {
				if err := add(how, waiting); err != nil {
					return t, err
				}
			}
		}
	}
	if err := t.TakeTurns(ctx, min(3, b.Rounds), contenders...); err != nil {
		return t, err
	}
	for _, r := range t.Rows {
		base := t.Median(empty[r.Name], measure.JobRate)
		for _, s := range r.Samples {
			s[shareOfEmpty] = s[measure.JobRate] / base
		}
	}
	for _, how := range []string{present, inLine} {
		most := measure.Format(float64(amounts[len(amounts)-1])) + " " + how
		t.Expect("Forebay's share of the empty rate with "+most, t.Median("Forebay, "+most, shareOfEmpty), "≥", 0.75)
	}
	return t, nil
}

// loadedForebay is a server whose task "life" waits for its gate, so that filling runs nothing.
type loadedForebay struct{ *embedded.Server }

func openForebay(ctx context.Context, b *measure.Bench, on measure.Engine) (loaded, error) {
	hold := forebay.Task{Name: "hold", Run: func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
		<-ctx.Done() // keeps the queue's one worker busy
		return forebay.TaskResult{}, ctx.Err()
	}}
	e, err := embedded.Start(ctx, b, on, map[string]server.Queue{otherQueue: {Concurrency: 1}}, hold)
	return loadedForebay{e}, err
}

func (l loadedForebay) fill(ctx context.Context, how string, waiting int) error {
	const submitters = 512 // more of them share a commit
	tomorrow := time.Now().Add(24 * time.Hour)
	err := measure.InParallel(submitters, waiting, func(i int) error {
		req := forebay.SubmitRequest{Task: "life", Input: measure.Payload}
		switch {
		case how == inLine:
		case i%2 == 0:
			req = forebay.SubmitRequest{Task: "hold", Input: measure.Quoted(waitingBytes), ScheduledAt: &tomorrow}
		default:
			req = forebay.SubmitRequest{Task: "hold", Input: measure.Quoted(waitingBytes), Queue: otherQueue}
		}
		_, err := l.Submit(ctx, forebay.DefaultTenant, req)
		return err
	})
	if pg, ok := l.On.(*measure.PostgresEngine); ok && err == nil && waiting > 0 {
		err = pg.Settle(ctx, l.Place.Database)
	}
	return err
}

// loadedRiver is River's database; River itself runs only while it is measured, since it polls.
type loadedRiver struct {
	riverDatabase[pgx.Tx]
	b  *measure.Bench
	pg *measure.PostgresEngine
}

// Live measures River on the database.
func (l *loadedRiver) Live(ctx context.Context, jobs int) (measure.Sample, error) {
	return l.riverDatabase.live(ctx, l.b, jobs)
}

// Stop removes the database.
func (l *loadedRiver) Stop() error { return l.release() }

func (l *loadedRiver) fill(ctx context.Context, how string, waiting int) error {
	inserter, err := river.NewClient(l.driver, &river.Config{Logger: riverLog})
	if err != nil {
		return err
	}
	small := riverArgs{Payload: measure.Text[:waitingBytes]}
	tomorrow := time.Now().Add(24 * time.Hour)
	const batch = 5000
	for left := waiting; left > 0; left -= batch {
		jobs := make([]river.InsertManyParams, min(batch, left))
		for i := range jobs {
			switch {
			case how == inLine:
				jobs[i] = river.InsertManyParams{Args: riverArgs{Payload: measure.Text}}
			case i%2 == 0:
				jobs[i] = river.InsertManyParams{Args: small, InsertOpts: &river.InsertOpts{ScheduledAt: tomorrow}}
			default:
				jobs[i] = river.InsertManyParams{Args: small, InsertOpts: &river.InsertOpts{Queue: otherQueue}}
			}
		}
		if _, err := inserter.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	if waiting == 0 {
		return nil
	}
	return l.pg.Settle(ctx, l.address)
}
