package store

// Where processes share a database, which is PostgreSQL, all locks are renewed in one round trip.

const sqlRenewShared = `
UPDATE messages m SET visible = ? FROM unnest(CAST(? AS bigint[]), CAST(? AS bigint[])) AS x(seq, token)
WHERE m.seq = ANY (ARRAY[x.seq]) AND m.token = x.token RETURNING m.seq, m.token`

func (t *jobsTx) renewShared(locks []Lock, until int64) (held []bool, err error) {
	seqs, tokens := make([]int64, len(locks)), make([]int64, len(locks))
	at := make(map[Lock]int, len(locks))
	for i, l := range locks {
		seqs[i], tokens[i], at[l] = l.Seq, l.Token, i
	}
	held = make([]bool, len(locks))
	err = t.prep(sqlRenewShared).int(until).text(arrayOf(seqs)).text(arrayOf(tokens)).each(func(r row) error {
		held[at[Lock{Seq: r.int(0), Token: r.int(1)}]] = true
		return nil
	})
	return held, err
}
