package quota

const (
	// slideAfter is how far apart two calls must be made for their resets to be compared.
	slideAfter = 4 * second
	// slideLeast is by how much a reset that moves has moved at least, beyond rounding and delays.
	slideLeast = 3 * second
	// rollsWithin is by how much the reset of a window that rolls may differ.
	rollsWithin = second / 2
	// rollsAfter is an amount, told as the time in which a minute's quota admits it. When so much
	// was used or forgotten, and the reset did not change, the window rolls.
	rollsAfter = second * 6 / 5
	// fixedReset tells a fixed window: a rolling one is always said to be renewed in a minute.
	fixedReset = 50 * second
)

// How the resets that headers name behave.
const (
	windowUnknown = iota
	windowFixed   // they stay: the counter begins anew at that time
	windowSlides  // they move with time: what was used is forgotten by and by
	windowRolls   // the same, and each call is forgotten a minute after it was made
)

// providerWindow is the kind of window in which the provider counts tokens, as learned from the
// resets that headers name.
type providerWindow struct {
	kind int64 // windowUnknown and others
	from int64 // when the call was made whose reset others are compared with; 0: there is none
	was  int64 // that reset
	left int64 // what that call's headers said is left
}

// learn compares the reset that a call's headers name with that of an earlier call. Resets count
// from when calls were made, for when they are heard of varies more.
func (w *providerWindow) learn(r Reservation, reset, remaining, perMinute int64) {
	at, before := r.At+reset, w.was-w.from
	switch since := r.At - w.from; {
	case w.from == 0 || since >= minute || r.At >= w.was-slideLeast:
		// There is nothing to compare it with.
	case since < slideAfter:
		return
	case at-w.was >= max(slideLeast, since/2):
		w.kind = max(w.kind, windowSlides)
		// Where what was used is forgotten steadily, the reset is as far away as there is to forget.
		changed := max(remaining-w.left, w.left-remaining)
		switch differs := max(reset-before, before-reset); {
		case differs > slideLeast:
			w.kind = windowSlides
		case reset >= fixedReset && differs < rollsWithin && changed*minute >= rollsAfter*perMinute:
			w.kind = windowRolls
		case differs < rollsWithin:
			return // it is compared with what is left later
		}
	case at-w.was < slideLeast && since >= 2*slideAfter:
		w.kind = windowFixed
	}
	w.from, w.was, w.left = r.At, at, remaining
}

// refused learns from a refusal whose wait ends so much earlier than the reset that it names, both
// in milliseconds. Where the window slides there is room again long before the reset.
func (w *providerWindow) refused(early, reset int64) {
	switch {
	case early >= slideLeast:
		w.kind = max(w.kind, windowSlides)
	case w.kind == windowUnknown && early > -slideLeast && reset > shortWait:
		w.kind = windowFixed
	}
}
