package quota

import "math/bits"

const (
	breakerCalls = 10 // fewer calls than this do not open the breaker
	latestCalls  = 60
)

// recentCalls is how the latestCalls went, in the order in which they began. Each has a bit, the
// newest the lowest.
type recentCalls struct {
	newest int64 // Seq of the last of them
	failed int64 // those that have failed
	// silent are those that said nothing about the deployment. While the breaker is half-open they
	// are the probes that have counted as passed.
	silent int64
	again  int64 // those that failed of jobs that had failed before; while half-open, the probes
}

// place returns the bit that a call has; 0: it is none of the latest.
func (c *recentCalls) place(seq int64) (bit int64) {
	later := seq - c.newest
	if later > 0 {
		const all = 1<<latestCalls - 1
		c.newest, c.failed, c.silent, c.again = seq, c.failed<<later&all, c.silent<<later&all, c.again<<later&all
		later = 0
	}
	if later <= -latestCalls {
		return 0
	}
	return 1 << -later
}

// fail notes that a call has failed, and reports whether it is one of the latest.
func (c *recentCalls) fail(r Reservation) bool {
	bit := c.place(r.Seq)
	c.failed |= bit
	c.silent &^= bit
	if r.Again {
		c.again |= bit
	}
	return bit != 0
}

// repeated takes in that a job failed which had failed before, while others go well. That says
// something about the job. The call counts as one that failed and that says nothing of the
// deployment.
func (c *recentCalls) repeated(r Reservation) {
	bit := c.place(r.Seq)
	c.failed |= bit
	c.silent |= bit
}

// clear forgets how calls went.
func (c *recentCalls) clear() { c.failed, c.silent, c.again = 0, 0, 0 }

// jobs is how many jobs failed for the first time.
func (c *recentCalls) jobs() int { return bits.OnesCount64(uint64(c.failed &^ c.silent &^ c.again)) }

// failures is how many calls have failed by the time of a later one.
func (c *recentCalls) failures(seq int64) int {
	const all = 1<<latestCalls - 1
	return bits.OnesCount64(uint64(c.failed << uint64(seq-c.newest) & all))
}

// underWay is how many probes have not been heard of, while the breaker is half-open.
func (c *recentCalls) underWay() int {
	return bits.OnesCount64(uint64(c.again &^ c.failed &^ c.silent))
}

// probesFailed is how many probes have failed, while the breaker is half-open.
func (c *recentCalls) probesFailed() int64 { return int64(bits.OnesCount64(uint64(c.failed))) }

// leads returns by how many failures outnumber the others in rows of calls. last is of the latest
// row, most the highest number in any row of at least breakerCalls.
//
// Calls not heard of yet are among the others. So it does not matter how many went well before, or
// still do that began before. Nor does it matter that failures are heard of sooner than successes.
func (c *recentCalls) leads() (most, last int) {
	calls := 0
	for bit := int64(1) << (latestCalls - 1); bit > 0; bit >>= 1 {
		switch {
		case c.failed&^c.silent&bit != 0:
			calls, last = calls+1, last+1
			if calls >= breakerCalls {
				most = max(most, last)
			}
		case c.silent&bit != 0:
		case last <= 1:
			calls, last = 0, 0
		default:
			calls, last = calls+1, last-1
		}
	}
	return most, last
}
