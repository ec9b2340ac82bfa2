package store

const sqlCount = `
INSERT INTO counters (name, value) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET value = CASE WHEN counters.value > excluded.value THEN counters.value ELSE excluded.value END`

// seqBlock is how many sequence numbers are counted ahead.
const seqBlock = 1 << 12

// newSeq gives a message its sequence number. A completed message leaves no trace by which a restart
// could tell that its number was given, so the counter on disk is kept ahead of them, block by block.
func (t *tx) newSeq() (int64, error) {
	if t.w.share != nil {
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
