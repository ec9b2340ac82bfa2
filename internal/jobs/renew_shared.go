package jobs

import (
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Where processes share a database (PostgreSQL), one round trip renews all locks.

const sqlRenewShared = `
UPDATE messages m SET visible_at = ? FROM unnest(CAST(? AS bigint[]), CAST(? AS bigint[])) AS x(seq, lock_token)
WHERE m.seq = ANY (ARRAY[x.seq]) AND m.lock_token = x.lock_token RETURNING m.seq, m.lock_token`

func (t *Tx) renewShared(locks []queue.Lock, until int64) (held []bool, err error) {
	seqs, tokens := make([]int64, len(locks)), make([]int64, len(locks))
	at := make(map[queue.Lock]int, len(locks))
	for i, l := range locks {
		seqs[i], tokens[i], at[l] = l.Seq, l.Token, i
	}
	held = make([]bool, len(locks))
	err = t.Prep(sqlRenewShared).Int(until).Text(driver.ArrayOf(seqs)).Text(driver.ArrayOf(tokens)).Each(func(r driver.Row) error {
		held[at[queue.Lock{Seq: r.Int(0), Token: r.Int(1)}]] = true
		return nil
	})
	return held, err
}
