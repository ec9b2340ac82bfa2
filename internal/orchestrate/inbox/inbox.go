// Package inbox knows what a transaction has put into the inboxes of instances. A completed work
// item is ready again when the first event is due that its instance has not seen. What is read of
// that at the beginning of a transaction does not tell of the events that it adds.
package inbox

// Never is when nothing is due.
const Never = 1 << 62

// Arrivals are the events that a transaction has added, by the number of their instance.
type Arrivals map[int64]arrived

// arrived are the times at which the first events of an instance are due; 0: there are none.
type arrived struct {
	answer int64 // to something that its execution has asked for
	other  int64
}

// Add records an event.
func (a *Arrivals) Add(instance, at int64, answer bool) {
	if *a == nil {
		*a = Arrivals{}
	}
	now := (*a)[instance]
	first := &now.other
	if answer {
		first = &now.answer
	}
	if *first == 0 || at < *first {
		*first = at
	}
	(*a)[instance] = now
}

// ForgetAnswers records that an inbox has no answers any more.
func (a Arrivals) ForgetAnswers(instance int64) {
	if now, some := a[instance]; some {
		a[instance] = arrived{other: now.other}
	}
}

// Next is when the first event of an instance is due, or Never.
func (a Arrivals) Next(instance int64) int64 {
	next := int64(Never)
	for _, at := range []int64{a[instance].answer, a[instance].other} {
		if at > 0 {
			next = min(next, at)
		}
	}
	return next
}
