package quota

// Headers that count the requests of a second tell of its windows. Two groups of our calls are
// compared: the latest that were made together, and those before. If more is left than before, a
// window began between them. If less is left than our own calls account for, others called. The
// beginning is known to lie within wide milliseconds before at, and each comparison may make that
// less.

// readRequests takes in what the headers of a call say is left of the requests. It reports
// whether that is of a second.
func (p *pacing) readRequests(c *capacity, r Reservation, o Outcome) bool {
	w, holds := &p.short, c.meters[Requests].cap/60
	left, limit, reset := o.Headers.Remaining[Requests], o.Headers.Limit[Requests], o.Headers.Reset[Requests].Milliseconds()
	notSaid := left < 0 || left == 0 && (limit <= 0 || w.seenAt == 0)
	if !p.bySlice || holds < 1 || notSaid {
		return false
	}
	switch {
	case left >= holds || reset > second:
		if w.length == second && w.trip == 0 {
			*w = shortWindow{}
		}
		return false
	case r.Seq > c.seq, o.Kind != HeadersArrived && o.Kind != Succeeded:
		return w.length == second // or it is of before this state began anew
	case w.length == 0:
		if reset <= 0 && c.window.sum[Requests]+left > c.meters[Requests].cap/2 {
			return false // it may be what is left of a minute
		}
		*w = shortWindow{length: second, at: r.At + second, wide: second,
			seenAt: r.At, seenLeft: left, seenMost: left, seenSeq: r.Seq,
			from: r.At, used: c.seq - r.Seq + 1, ahead: c.seq - r.Seq, peak: c.window.underWay()}
	case w.length != second:
		return false
	}
	p.burstCutUntil = c.clock + burstCutFor
	if w.late(c.clock - r.At) {
		if r.At < w.seenAt+shortTogether && r.At > w.seenAt-shortTogether {
			w.wasAt = 0 // those made with it tell nothing without it
		}
		return true
	}
	w.tells(r, left, holds)
	return true
}

// late reports whether a call was heard of so late that it may have reached the provider late.
// A call that opens a connection does.
func (w *shortWindow) late(lag int64) bool {
	if w.lag == 0 || lag < w.lag {
		w.lag = max(lag, 1)
	}
	late := lag > w.lag*3/2+shortDiffers
	w.lag += (lag - w.lag) / 64
	return late
}

// tells takes in what was left after a call.
func (w *shortWindow) tells(r Reservation, left, holds int64) {
	switch apart := r.At - w.seenAt; {
	case w.seenAt == 0:
		w.seenAt, w.seenLeft, w.seenMost, w.seenSeq = r.At, left, left, r.Seq
		return
	case apart < -shortTogether:
		return
	case apart < shortTogether:
		w.seenLeft, w.seenMost, w.seenSeq = min(w.seenLeft, left), max(w.seenMost, left), max(w.seenSeq, r.Seq)
	default:
		w.meets(holds)
		w.wasAt, w.wasLeft, w.wasSeq = w.seenAt, w.seenLeft, w.seenSeq
		w.seenAt, w.seenLeft, w.seenMost, w.seenSeq = r.At, left, left, r.Seq
	}
	w.judge(holds)
}

// judge tells from the latest calls when a window began.
func (w *shortWindow) judge(holds int64) {
	ours := w.seenSeq - w.wasSeq
	if w.wasAt == 0 || ours <= 0 || w.seenAt-w.wasAt >= w.length {
		return
	}
	switch begun, old := w.begunBy(), w.seenLeft < min(w.wasLeft, holds-ours-1); {
	case begun && old: // as they arrived
		w.narrow(w.seenAt-shortTogether/4, w.seenAt+shortTogether, true)
	case begun:
		w.narrow(w.wasAt, w.seenAt+shortLate, true)
	case w.wasLeft-w.seenLeft-ours >= 0 && w.wasLeft-w.seenLeft-ours < holds-ours-w.seenLeft:
		// It is the same window, or others were as many as that.
		w.narrow(w.seenAt, w.wasAt+w.length, false)
	}
}

// begunBy reports whether a window has begun since the calls before the latest.
func (w *shortWindow) begunBy() bool { return w.seenMost >= w.wasLeft }

// meets takes in how many calls others made before the latest of ours that were made together.
func (w *shortWindow) meets(holds int64) {
	others, over := w.latest(holds)
	w.others += others
	w.over += over
	if w.over > shortDecay {
		w.others, w.over = w.others/2, w.over/2
	}
}

// latest returns how many calls others made before the latest of ours that were made together,
// and in how many milliseconds. That time begins with ours before them, or with their window.
func (w *shortWindow) latest(holds int64) (others, over int64) {
	ours := w.seenSeq - w.wasSeq
	others, since := w.wasLeft, w.wasAt
	fresh := w.begunBy() || w.wasAt < w.begun(w.seenAt)-shortLate-w.wide
	if fresh {
		others, since = holds, max(w.wasAt, w.begun(w.seenAt)-shortLate-w.wide/2)
		if w.begunBy() && w.seenLeft < min(w.wasLeft, holds-ours-1) {
			return 0, 0
		}
	}
	others -= w.seenLeft + ours
	if over = w.seenAt - since; fresh {
		over += shortApart
	}
	if w.wasAt == 0 || w.wide > w.length/2 || others < 0 || over >= w.length {
		return 0, 0
	}
	return others, max(over, shortLate)
}

// narrow takes in that a window has begun after one time and before another. What is not certain
// does not count against what is.
func (w *shortWindow) narrow(after, by int64, certain bool) {
	if by-after >= w.length {
		return
	}
	for by-w.at > w.length/2 {
		after, by = after-w.length, by-w.length
	}
	for w.at-by > w.length/2 {
		after, by = after+w.length, by+w.length
	}
	for _, shift := range [...]int64{0, w.length, -w.length} {
		low, high := max(w.at-w.wide, after+shift), min(w.at, by+shift)
		switch gap := low - high; {
		case gap <= -min(shortLate, w.wide):
			w.at, w.wide = high, high-low
			return
		case certain && gap <= shortTogether: // a call took a little longer
			last := max(w.at, min(low, by+shift))
			w.at, w.wide = last, min(last-min(w.at-w.wide, high), w.length)
			return
		}
	}
	if certain {
		w.at, w.wide = by, by-after
	}
}

// told reports whether headers tell of the window.
func (w *shortWindow) told(now int64) bool { return w.seenAt > 0 && now-w.seenAt < minute }
