package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay/bench/measure"
)

// riverTuned was the fastest setting tried. Tried were 8 to 64 connections, polling from every 5
// ms to every second, and double the producers and workers. riverWide is what River's own
// benchmark command uses.
var (
	riverTuned  = riverTuning{producers: measure.Workers, workers: measure.Workers, conns: 16, poll: time.Second}
	riverDouble = riverTuning{producers: double, workers: double, conns: 16, poll: time.Second}
	riverWide   = riverTuning{producers: measure.Workers, workers: 2000, conns: 16, poll: 20 * time.Millisecond}
)

const double = 2 * measure.Workers

// LifeOnPostgres is the first measurement on PostgreSQL.
func LifeOnPostgres(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	const ours, oursDouble = "Forebay, 64 to 64", "Forebay, 128 to 128"
	const tuned, tunedDouble, wide = "River, tuned, 64 to 64", "River, tuned, 128 to 128", "River, 64 to 2,000"
	t := measure.Table{
		Title: "Full life of a 1 KiB job, in process, on PostgreSQL",
		Text: fmt.Sprintf(`The first measurement on PostgreSQL instead of SQLite: one server for all, started for this run (shared_buffers 256 MB,
max_wal_size 2 GB, fsync and synchronous_commit on, else its defaults), an empty database and a checkpoint before each round.
River %s through pgx: single inserts like Forebay's, of its fetch cooldowns the fastest (1 ms), a pool of %d connections; with
2,000 workers it polls every %v. The rows tell how many goroutines submit and how many workers there are. CPU is that of this
process and of PostgreSQL's together.`, riverVersion, riverTuned.conns, riverWide.poll),
		Columns: []string{measure.JobRate, "enqueue p50 ms", "enqueue p99 ms", "CPU µs/job", measure.EngineShare, "allocations/job", "disk flushes/job"},
	}
	pg, err := b.Postgres(ctx)
	if err != nil {
		return t, err
	}
	forebay := func(places int) func(context.Context) (measure.Sample, error) {
		return func(ctx context.Context) (measure.Sample, error) {
			return forebayLife(ctx, b, pg, b.Size(20_000, 10_000), places)
		}
	}
	contenders := []measure.Contender{{Name: ours, Round: forebay(measure.Workers)}, {Name: oursDouble, Round: forebay(double)}}
	if b.Peers {
		river := func(tuning riverTuning) func(context.Context) (measure.Sample, error) {
			open := func(ctx context.Context) (riverDatabase[pgx.Tx], error) { return riverPostgres(ctx, pg, tuning) }
			return func(ctx context.Context) (measure.Sample, error) { return riverLife(ctx, b, open, b.Size(8000, 4000)) }
		}
		contenders = append(contenders, measure.Contender{Name: tuned, Round: river(riverTuned)}, measure.Contender{Name: tunedDouble, Round: river(riverDouble)}, measure.Contender{Name: wide, Round: river(riverWide)})
	}
	if err := t.TakeTurns(ctx, b.Rounds, contenders...); err != nil {
		return t, err
	}
	rate := func(name string) float64 { return t.Median(name, measure.JobRate) }
	p99 := func(name string) float64 { return t.Median(name, "enqueue p99 ms") }
	t.Expect("Forebay's better rate as a multiple of River's best", max(rate(ours), rate(oursDouble))/max(rate(tuned), rate(tunedDouble), rate(wide)), "≥", 5)
	t.Expect("Forebay's enqueue p99 as a share of River's lower one, 64 producers", p99(ours)/min(p99(tuned), p99(wide)), "<", 1)
	t.Expect("Forebay's enqueue p99 as a share of River's, 128 producers", p99(oursDouble)/p99(tunedDouble), "<", 1)
	return t, nil
}
