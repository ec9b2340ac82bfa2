package quota

// headerKept is how long a limit that the provider said is believed.
const headerKept = 10 * minute

// leftKept is how long it is remembered that more was left than is configured.
const leftKept = 2 * minute

// meter is one dimension of the quota.
type meter struct {
	cap   int64 // the quota per minute as configured and as the provider says; 0: unknown
	limit int64 // what is used of it; 0: unknown
	spent int64 // reserved ever

	// What the newest call that had headers said.
	headerLimit int64 // 0: not said
	limitAt     int64 // when that was heard
	remaining   int64 // 0: not said
	mark        int64 // spent when that call was made
	markAt      int64 // when that call was made
	resetAt     int64 // when remaining is renewed; 0: not said
}

// said is what headers said remains, less what was reserved since.
func (m *meter) said() int64 { return m.remaining - (m.spent - m.mark) }

// told is the limit that headers tell: those of an answer, or earlier ones. 0: none do.
func (m *meter) told(now int64) int64 {
	if now > 0 && now <= maxAmount {
		return now
	}
	return m.headerLimit
}

// hasAtLeast takes in that more was left than is configured, where headers name no limit. The
// provider's is no smaller than that. So what is left then or later is not all ours.
func (m *meter) hasAtLeast(now, remaining int64) {
	m.headerLimit = max(m.headerLimit, remaining)
	m.limitAt = max(m.limitAt, now-headerKept+leftKept)
}

// follow sets the quota to what is configured or what the provider says, whichever is less. It
// returns the quota before.
func (m *meter) follow(now, configured int64) (before int64) {
	if now-m.limitAt > headerKept {
		m.headerLimit = 0
	}
	quota := min(max(configured, 0), maxAmount)
	if m.headerLimit > 0 && (quota == 0 || m.headerLimit < quota) {
		quota = m.headerLimit
	}
	before = m.cap
	if quota == before {
		return before
	}
	m.cap = quota
	if quota == 0 || quota > before || m.limit == 0 {
		m.limit = quota
	} else {
		m.limit = min(m.limit, quota)
	}
	return before
}

func (m *meter) plausible(clock, ahead int64) bool {
	return m.cap <= maxAmount && m.limit <= maxAmount && m.remaining <= maxAmount &&
		m.headerLimit <= maxAmount && m.markAt <= clock+minute && m.resetAt <= ahead &&
		m.limitAt <= clock+minute
}
