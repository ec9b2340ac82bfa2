package quota

const (
	// patience is how long others may go ahead of a candidate.
	patience = 45 * second
	// forgotten is when a candidate that was passed over and is no longer seen is forgotten.
	forgotten = 5 * minute
	maxPassed = Backfill // those that one round lets others go ahead of, at most
)

// passed is a candidate that others went ahead of.
type passed struct{ id, since, seen int64 }

// passedOver are the candidates that others went ahead of, oldest first.
type passedOver []passed

// seen notes which of them still wait.
func (p *passedOver) seen(now int64, line []Candidate) {
	kept := (*p)[:0]
	for _, c := range *p {
		if indexOf(line, c.id) >= 0 {
			c.seen = now
		}
		if now-c.seen < forgotten {
			kept = append(kept, c)
		}
	}
	*p = kept
}

// add notes that others went ahead of a candidate.
func (p *passedOver) add(now, id int64) {
	for _, c := range *p {
		if c.id == id {
			return
		}
	}
	if len(*p) < maxPassed {
		*p = append(*p, passed{id: id, since: now, seen: now})
	}
}

// remove forgets a candidate that goes now.
func (p *passedOver) remove(id int64) {
	for i, c := range *p {
		if c.id == id {
			*p = append((*p)[:i], (*p)[i+1:]...)
			return
		}
	}
}
