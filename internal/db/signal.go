package db

const (
	// maxSignals is how many signals wait to be sent.
	maxSignals = 256
	// signalsAtOnce is how many of them go between two notifications, which must not wait for them.
	signalsAtOnce = 8
)

// signals are texts that processes tell each other besides what they commit. Some may be lost.
type signals struct {
	channel string
	waiting chan string
	heard   Listener[string]
}

// next returns a signal that waits; "": none does.
func (s *signals) next() string {
	select {
	case text := <-s.waiting:
		return text
	default:
		return ""
	}
}

// Signal tells the other processes that share the database a text of at most 7,900 bytes of UTF-8
// without NUL. It is false if that was dropped: too much waits already, or there are no others.
func (s *DB) Signal(text string) bool {
	if s.signals == nil || text == "" || len(text) > maxPayloadBytes {
		return false
	}
	select {
	case s.signals.waiting <- text:
		return true
	default:
		return false
	}
}

// OnSignal makes f hear the signals of the others. It must be quick.
func (s *DB) OnSignal(f func(text string)) {
	if s.signals != nil {
		s.signals.heard.Set(f)
	}
}
