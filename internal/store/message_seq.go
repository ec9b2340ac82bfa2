package store

// seqBlock is how many sequence numbers are counted ahead.
const seqBlock = 1 << 12

// newSeq gives a message its sequence number. A completed message leaves no trace by which a restart
// could tell that its number was given, so the counter on disk is kept ahead of them, block by block.
func (t *queueTx) newSeq() (int64, error) {
	if t.w.shared() {
		return t.sharedSeq()
	}
	seq := t.w.nextSeq
	if seq >= t.w.reservedSeq {
		if err := t.prep(sqlCount).text("seq").int(seq + seqBlock).exec(); err != nil {
			return 0, err
		}
		t.w.reservedSeq = seq + seqBlock
	}
	t.w.nextSeq++
	return seq, nil
}

const sqlNumbers = "SELECT nextval('seqs') FROM generate_series(1, ?)"

// jobSeq gives a job its number. Of a file there is one writer, which counts; rows of jobs tell a
// restart how far it came.
func (t *queueTx) jobSeq() (int64, error) {
	if t.w.shared() {
		return t.sharedSeq()
	}
	t.w.nextSeq++
	return t.w.nextSeq - 1, nil
}

// sharedSeq takes a number from the sequence that all processes share. Most were taken at the beginning
// of the transaction; what it does not use of those is never given.
func (t *queueTx) sharedSeq() (seq int64, err error) {
	if len(t.seqs) > 0 {
		seq, t.seqs = t.seqs[0], t.seqs[1:]
		return seq, nil
	}
	_, err = t.prep("SELECT nextval('seqs')").one(func(r row) { seq = r.int(0) })
	return seq, err
}

// reserveSeqs takes so many numbers more at once, where the next ones would take a round trip each.
func (t *queueTx) reserveSeqs(n int) error {
	if !t.w.shared() {
		return nil
	}
	return t.prep(sqlNumbers).int(int64(n)).each(func(r row) error {
		t.seqs = append(t.seqs, r.int(0))
		return nil
	})
}
