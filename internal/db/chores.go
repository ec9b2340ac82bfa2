package db

import (
	"context"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/sleep"
)

const sqlTakeTurn = `
INSERT INTO counters (name, value) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE counters.value <= ?3 OR counters.value > ?2`

// TakeTurn reports whether the caller is to do a periodic chore. Each time, one of all
// processes is told so. A turn further ahead than that is a clock's mistake.
func (s *DB) ClaimChore(ctx context.Context, chore string, every time.Duration) (bool, error) {
	return Transact(ctx, s.Writer, Op{Stage: StageChange}, func(t *Tx) (bool, error) {
		rows, err := t.Prep(sqlTakeTurn).Text("turn/" + chore).Int(t.Now + every.Milliseconds()).Int(t.Now).Count()
		return rows == 1, err
	})
}

// settlePatience is how long [DB.Settled] waits for transactions that are under way.
const settlePatience = time.Second

// A transaction counts as under way, though its client has gone, as long as its commit waits
// for a standby. The bound of a snapshot is one more than the latest transaction that is over.
// A number taken for this purpose, which writes nothing, marks what began before.
const (
	sqlOwnTransaction    = "SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint)"
	sqlOldestTransaction = "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"
)

// Settled reports whether every transaction is over that had written something when it was
// called. What those have stored can be seen then. It waits for a second at most.
func (s *DB) Settled(ctx context.Context) (settled bool, err error) {
	if !s.Writer.Shared() { // there is one writer, which knows how its transactions ended
		return true, ctx.Err()
	}
	number := func(sql string) (n int64, err error) {
		err = s.Read(ctx, func(c driver.Conn) error {
			_, err := c.Prep(sql).One(func(r driver.Row) { n = r.Int(0) })
			return err
		})
		return n, err
	}
	until, err := number(sqlOwnTransaction)
	for began := time.Now(); err == nil && !settled && time.Since(began) < settlePatience; {
		var oldest int64
		oldest, err = number(sqlOldestTransaction)
		if settled = oldest >= until; err == nil && !settled {
			err = sleep.For(ctx, settlePatience/50)
		}
	}
	return settled && err == nil, err
}
