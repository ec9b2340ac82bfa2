package quota

const (
	// trendFor is how long a trend is trusted to go on.
	trendFor = 3 * second
	// trendOver is the time over which trends are averaged.
	trendOver = 4 * second
	// trendApart is the least time between two headers that are compared.
	trendApart = second
	// trendLeast is the percentage of the quota that others must have used. Less may be calls on
	// their way.
	trendLeast = 5
)

// unseen is what the provider counts and the window does not. Other programs have used it, or
// calls that were made before κ was known. Where the provider's window slides, two headers tell
// how fast that becomes less or more.
type unseen struct {
	tokens int64
	until  int64 // when the provider begins to count anew

	frees, takes int64 // tokens a minute by which that falls or rises lately
	trendAt      int64 // when the call was made that others are compared with; 0: there is none
	trendWas     int64 // tokens then
}

// counted is how much of it counts now.
func (u *unseen) counted(now int64, slides bool) int64 {
	if now >= u.until {
		return 0
	}
	if slides {
		// Those who used it may go on doing so. Three quarters of what they do would then be new.
		return u.tokens - u.tokens*min(max(minute-(u.until-now), 0), minute)/(4*minute)
	}
	return u.tokens
}

// much reports whether it is more than calls on their way can be.
func (u *unseen) much(perMinute int64) bool { return u.tokens >= perMinute*trendLeast/100 }

// freed is by how much it is less than headers said so many milliseconds ago; below 0: more. After
// trendFor it is a quarter of what an even use would leave, for others may go on.
func (u *unseen) freed(ms, perMinute int64) int64 {
	if !u.much(perMinute) {
		return 0
	}
	known := int64(0)
	if u.hasTrend() {
		known = min(ms, trendFor)
	}
	return (u.frees-u.takes)*known/minute + u.tokens/4*(ms-known)/minute
}

func (u *unseen) hasTrend() bool { return u.frees|u.takes != 0 }

// rate is how many tokens a minute others are thought to take.
func (u *unseen) rate() int64 {
	if !u.hasTrend() {
		return u.tokens * 3 / 4
	}
	return max(u.tokens-u.frees+u.takes, 0)
}

// learnTrend takes in how much it was when a call was made. Without a sliding window there is no
// trend.
func (u *unseen) learnTrend(at, perMinute int64, slides bool) {
	if !slides || !u.much(perMinute) {
		u.frees, u.takes, u.trendAt = 0, 0, 0
		return
	}
	apart := at - u.trendAt
	if u.trendAt != 0 && apart < trendApart {
		return
	}
	if u.trendAt != 0 {
		rate := float64(u.trendWas-u.tokens) * minute / float64(apart)
		trend := float64(u.frees - u.takes)
		if trend == 0 {
			trend = rate
		}
		trend += (rate - trend) * float64(apart) / float64(apart+trendOver)
		u.frees = min(max(int64(trend), 0), perMinute)
		u.takes = min(max(int64(-trend), 0), perMinute)
	}
	u.trendAt, u.trendWas = at, u.tokens
}
