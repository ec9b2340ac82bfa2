package quota

const (
	marginMost = 100 // the margin is at most this part of the quota
	marginKept = 5 * minute
)

// margin is the distance that calls keep from what headers say is left. Headers say too much where
// others have used some of it since, or where calls take long to arrive.
type margin struct {
	tokens    int64
	widenedAt int64 // when it was last widened or narrowed
}

// widen takes in that a call was refused that lacked so many tokens by its headers.
func (g *margin) widen(now, madeAt, lacked, perMinute int64) {
	if now-g.widenedAt < second || madeAt < g.widenedAt {
		return
	}
	g.widenedAt = now
	g.tokens = min(g.tokens+max(lacked, perMinute/400), perMinute/marginMost)
}

// narrow halves the margin for each marginKept without such a refusal.
func (g *margin) narrow(now int64) {
	for g.tokens > 0 && now-g.widenedAt >= marginKept {
		g.widenedAt += marginKept
		g.tokens /= 2
	}
}
