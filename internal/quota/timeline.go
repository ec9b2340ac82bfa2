package quota

// timeline is what all parts of a state share: the time, the number of reservations, and the
// changes to report.
type timeline struct {
	clock   int64    // the latest time seen
	seq     int64    // reservations ever made
	changes []Change // not stored
}

func (t *timeline) note(c Change) {
	c.At = t.clock
	t.changes = append(t.changes, c)
}

// rewind moves times back by so many milliseconds, but not below 0.
func rewind(by int64, times ...*int64) {
	for _, t := range times {
		*t = max(*t-by, 0)
	}
}
