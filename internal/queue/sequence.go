package queue

import (
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
)

// seqBlock is how many sequence numbers are reserved at once.
const seqBlock = 1 << 12

// NewSeq returns a message's sequence number. A completed message leaves no row by which a
// restart could tell that its number was given. So the counter on disk is kept ahead, block by
// block.
func (t *Tx) NewSeq() (int64, error) {
	if t.w.Shared() {
		return t.sharedSeq()
	}
	seq := t.w.nextSeq
	if seq >= t.w.reservedSeq {
		if err := t.Prep(schema.SQLCount).Text("seq").Int(seq + seqBlock).Exec(); err != nil {
			return 0, err
		}
		t.w.reservedSeq = seq + seqBlock
	}
	t.w.nextSeq++
	return seq, nil
}

const sqlNumbers = "SELECT nextval('seqs') FROM generate_series(1, ?)"

// JobSeq returns a job's number. A database file has one writer, which counts in memory. After a
// restart the rows of jobs say where it was.
func (t *Tx) JobSeq() (int64, error) {
	if t.w.Shared() {
		return t.sharedSeq()
	}
	t.w.nextSeq++
	return t.w.nextSeq - 1, nil
}

// sharedSeq takes a number from the sequence that all processes share. Most numbers were taken at
// the beginning of the transaction. Those that it does not use are never given.
func (t *Tx) sharedSeq() (seq int64, err error) {
	if len(t.Seqs) > 0 {
		seq, t.Seqs = t.Seqs[0], t.Seqs[1:]
		return seq, nil
	}
	_, err = t.Prep("SELECT nextval('seqs')").One(func(r driver.Row) { seq = r.Int(0) })
	return seq, err
}

// ReserveSeqs takes so many more numbers in one round trip.
func (t *Tx) ReserveSeqs(n int) error {
	if !t.w.Shared() {
		return nil
	}
	return t.Prep(sqlNumbers).Int(int64(n)).Each(func(r driver.Row) error {
		t.Seqs = append(t.Seqs, r.Int(0))
		return nil
	})
}

// SeqsQuery is ReserveSeqs in a round trip with other questions, where processes share the
// database.
func (t *Tx) SeqsQuery(n int) driver.PipelineQuery {
	return driver.PipelineQuery{SQL: sqlNumbers, Bind: func(st driver.Statement) driver.Statement { return st.Int(int64(n)) },
		OnRow: func(r driver.Row) { t.Seqs = append(t.Seqs, r.Int(0)) }}
}
