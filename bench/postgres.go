package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// riverTuned was the fastest of 8 to 64 connections, 64 and 2,000 workers, polling from every 5 ms to
// every second; riverWide is what River's own benchmark command uses.
var (
	riverTuned = riverTuning{workers: workers, conns: 16, poll: time.Second}
	riverWide  = riverTuning{workers: 2000, conns: 16, poll: 20 * time.Millisecond}
)

// lifeOnPostgres is the first measurement on PostgreSQL.
func lifeOnPostgres(ctx context.Context, b *bench) (table, error) {
	const ours, tuned, wide = "Forebay", "River, tuned", "River, 2,000 workers"
	t := table{
		title: "Full life of a 1 KiB job, in process, on PostgreSQL",
		text: fmt.Sprintf(`The first measurement on PostgreSQL instead of SQLite: one server for all, started for this run (shared_buffers 256 MB,
max_wal_size 2 GB, fsync and synchronous_commit on, else its defaults), an empty database and a checkpoint before each round.
River %s through pgx: single inserts from 64 goroutines like Forebay's, of its fetch cooldowns the fastest (1 ms), 64 workers
and a pool of %d connections; and with 2,000 workers, polling every %v as well. CPU is that of this process and of
PostgreSQL's together.`, riverVersion, riverTuned.conns, riverWide.poll),
		columns: []string{jobRate, "enqueue p50 ms", "enqueue p99 ms", "CPU µs/job", engineShare, "allocations/job", "disk flushes/job"},
	}
	pg, err := b.postgres(ctx)
	if err != nil {
		return t, err
	}
	contenders := []contender{{ours, func(ctx context.Context) (sample, error) { return forebayLife(ctx, b, pg, b.size(20_000, 10_000)) }}}
	if b.peers {
		river := func(tuning riverTuning) func(context.Context) (sample, error) {
			open := func(ctx context.Context) (riverDatabase[pgx.Tx], error) { return pg.riverPostgres(ctx, tuning) }
			return func(ctx context.Context) (sample, error) { return riverLife(ctx, b, open, b.size(8000, 4000)) }
		}
		contenders = append(contenders, contender{tuned, river(riverTuned)}, contender{wide, river(riverWide)})
	}
	if err := t.takeTurns(ctx, b.rounds, contenders...); err != nil {
		return t, err
	}
	best := max(t.median(tuned, jobRate), t.median(wide, jobRate))
	t.expect("Forebay's rate as a multiple of River's better one", t.median(ours, jobRate)/best, "≥", 5)
	lower := min(t.median(tuned, "enqueue p99 ms"), t.median(wide, "enqueue p99 ms"))
	t.expect("Forebay's enqueue p99 as a share of River's lower one", t.median(ours, "enqueue p99 ms")/lower, "<", 1)
	return t, nil
}
