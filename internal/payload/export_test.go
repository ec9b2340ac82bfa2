package payload

import "time"

const DoubtfulAfter = doubtfulAfter

// Doubtful returns how many payloads are in doubt.
func (s *Store) Doubtful() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.doubtful)
}

// Age makes the upload older.
func (u *Upload) Age(by time.Duration) { u.stored = u.stored.Add(-by) }

const SweptAfter = sweptAfter
