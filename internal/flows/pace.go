package flows

import "time"

// SweepPause is the shortest time between two full scans of a subqueue.
const SweepPause = time.Second

// Pace keeps full scans rare. A full scan passes the index entries of all removed messages. These
// are few, unless somebody keeps an old snapshot: then each full scan takes longer than the one
// before.
type Pace struct {
	usual  time.Duration    // of a transaction
	excess [2]time.Duration // per full scan, of the latest two transactions with some
}

// Note records how long a transaction took, and how many full scans it made.
func (p *Pace) Note(took time.Duration, scans int) {
	switch {
	case scans > 0:
		p.excess = [2]time.Duration{max(0, took-p.usual) / time.Duration(scans), p.excess[0]}
	case p.usual == 0:
		p.usual = took
	default:
		p.usual += (took - p.usual) / 16
	}
}

// Every returns the time between two full scans. It is at least least, and so long that full
// scans take less than a thousandth of the time. A single slow transaction does not count.
func (p *Pace) Every(least time.Duration) time.Duration {
	const share, most = 1000, 15 * time.Second
	return max(least, min(share*min(p.excess[0], p.excess[1]), most))
}
