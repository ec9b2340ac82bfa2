package history

import "github.com/forebayhq/forebay/internal/db/driver"

// SQLSpent reads what the attempts of job ?1 have used. A call whose use is unknown counts as what
// was held for it.
const SQLSpent = `
SELECT coalesce(CAST(sum(input_tokens + output_tokens + coalesce(assumed_tokens, 0)) AS BIGINT), 0) AS tokens,
  coalesce(CAST(sum(cost) AS BIGINT), 0) AS cost
FROM attempts WHERE seq = ?1`

// Spent returns what a job's attempts have used so far: tokens, and nano-dollars.
func Spent(c driver.Conn, seq int64) (tokens, cost int64, err error) {
	_, err = c.Prep(SQLSpent).Int(seq).One(func(r driver.Row) { tokens, cost = r.Int(0), r.Int(1) })
	return tokens, cost, err
}

// SQLComebacks counts the attempts of a generation after which its job went back, by class of
// error.
const SQLComebacks = `
SELECT count(CASE WHEN error_class = 'permanent' THEN 1 END), count(CASE WHEN error_class = 'transient' THEN 1 END)
FROM attempts WHERE seq = ? AND generation = ? AND outcome = 'retried'`

// Comebacks returns how many calls of a job's generation were denied, and how many failed in
// passing.
func Comebacks(c driver.Conn, seq int64, generation int) (denied, failed int, err error) {
	_, err = c.Prep(SQLComebacks).Int(seq).Int(int64(generation)).One(func(r driver.Row) { denied, failed = int(r.Int(0)), int(r.Int(1)) })
	return denied, failed, err
}
