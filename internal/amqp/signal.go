package amqp

// signal wakes all that wait for a change. The lock of what changes guards it.
type signal struct{ waiting chan struct{} }

// wait returns a channel that is closed at the next change.
func (s *signal) wait() <-chan struct{} {
	if s.waiting == nil {
		s.waiting = make(chan struct{})
	}
	return s.waiting
}

// fire tells of a change.
func (s *signal) fire() {
	if s.waiting != nil {
		close(s.waiting)
		s.waiting = nil
	}
}
