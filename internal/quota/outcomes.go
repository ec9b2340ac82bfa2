package quota

const (
	outcomeSeconds = 20 // the breaker's window
	maxOutcomes    = outcomeSeconds + 1
)

// outcomeWindow is how the calls went that were heard of in the last outcomeSeconds, oldest first.
type outcomeWindow []outcomes

type outcomes struct{ no, ok, failed int64 } // of one second

// count adds a call that is heard of now.
func (w *outcomeWindow) count(now int64, ok bool) {
	no := now / second
	list, n := *w, 0
	for n < len(list) && list[n].no <= no-outcomeSeconds {
		n++
	}
	list = list[:copy(list, list[n:])]
	if n := len(list); n == 0 || list[n-1].no < no {
		list = append(list, outcomes{no: no})
	}
	last := &list[len(list)-1]
	if ok {
		last.ok++
	} else {
		last.failed++
	}
	*w = list
}

// anyWentWell reports whether a call went well.
func (w outcomeWindow) anyWentWell(now int64) bool {
	for _, o := range w {
		if o.ok > 0 && o.no > now/second-outcomeSeconds {
			return true
		}
	}
	return false
}

// mostFailed reports whether less than half of at least breakerCalls went well. Where failures may
// be heard of sooner than successes, the window must be long enough for the others.
func (w outcomeWindow) mostFailed() bool {
	var ok, failed int64
	for _, o := range w {
		ok += o.ok
		failed += o.failed
	}
	return ok+failed >= breakerCalls && ok < failed
}

// unwell reports whether at least breakerCalls failed, and a sixth of all.
func (w outcomeWindow) unwell(now int64) bool {
	var all, failed int64
	for _, o := range w {
		if o.no > now/second-outcomeSeconds {
			all, failed = all+o.ok+o.failed, failed+o.failed
		}
	}
	return failed >= breakerCalls && failed*latestCalls >= all*breakerCalls
}

// rewind moves the window back to now, from a time so many milliseconds later. Seconds stay in
// order and apart, and the last is not in the future.
func (w outcomeWindow) rewind(by, now int64) {
	if len(w) == 0 {
		return
	}
	shift := max(by/second, w[len(w)-1].no-now/second)
	for i := range w {
		w[i].no = max(w[i].no-shift, int64(i))
	}
}
