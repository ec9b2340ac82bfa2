package payload

const DoubtfulAfter = doubtfulAfter

// Doubtful returns how many payloads are in doubt.
func (s *Store) Doubtful() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.doubtful)
}
