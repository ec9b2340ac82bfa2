package modelsim

import (
	"math"
	"time"
)

// counter adds up what was admitted, and forgets it over time. Times that it is given never go
// back.
type counter interface {
	// used is what counts against the limit.
	used(now time.Time) float64
	// add counts n more; below 0 it takes some back.
	add(now time.Time, n float64)
	// until is how long it takes until at most target is used, if nothing is added.
	until(now time.Time, target float64) time.Duration
	// scale changes how fast a steady counter forgets, to f times its first rate.
	scale(now time.Time, f float64)
}

// fixedWindow forgets everything whenever a window ends.
type fixedWindow struct {
	first  time.Time // when some window began
	length time.Duration
	index  int64 // of the window that sum is about
	sum    float64
}

func (c *fixedWindow) turn(now time.Time) {
	if index := int64(math.Floor(float64(now.Sub(c.first)) / float64(c.length))); index > c.index {
		c.index, c.sum = index, 0
	}
}

func (c *fixedWindow) used(now time.Time) float64 {
	c.turn(now)
	return c.sum
}

func (c *fixedWindow) add(now time.Time, n float64) {
	c.turn(now)
	c.sum = max(c.sum+n, 0)
}

func (c *fixedWindow) until(now time.Time, target float64) time.Duration {
	if c.used(now) <= target {
		return 0
	}
	return c.first.Add(time.Duration(c.index+1) * c.length).Sub(now)
}

func (c *fixedWindow) scale(time.Time, float64) {}

// rollingWindow forgets each addition after the length of the window.
type rollingWindow struct {
	length time.Duration
	list   []addition // oldest first
	sum    float64
}

type addition struct {
	at time.Time
	n  float64
}

// rollingGrain bounds the memory of a rolling window. Additions within it are merged.
const rollingGrain = time.Millisecond

func (c *rollingWindow) used(now time.Time) float64 {
	gone := 0
	for gone < len(c.list) && !now.Before(c.list[gone].at.Add(c.length)) {
		c.sum -= c.list[gone].n
		gone++
	}
	if gone == len(c.list) {
		c.list, c.sum = c.list[:0], 0
	} else {
		c.list = c.list[gone:]
	}
	return c.sum
}

func (c *rollingWindow) add(now time.Time, n float64) {
	c.used(now)
	c.sum += n
	if last := len(c.list) - 1; last >= 0 && now.Sub(c.list[last].at) < rollingGrain {
		c.list[last].n += n
		return
	}
	c.list = append(c.list, addition{now, n})
}

func (c *rollingWindow) until(now time.Time, target float64) time.Duration {
	left := c.used(now)
	var until time.Duration
	for _, a := range c.list {
		if left <= target {
			break
		}
		left -= a.n
		until = a.at.Add(c.length).Sub(now)
	}
	return until
}

func (c *rollingWindow) scale(time.Time, float64) {}

// leaking forgets steadily. It is a leaky bucket: a token bucket, counted by what is used.
type leaking struct {
	rate  float64 // a second
	speed float64 // of rate; 1 at first
	level float64
	at    time.Time
}

// leakingGrain is a tolerance for rounding: whoever waits as long as told must be admitted.
const leakingGrain = 1e-6

func (c *leaking) used(now time.Time) float64 {
	if d := now.Sub(c.at); d > 0 {
		c.level = max(c.level-d.Seconds()*c.rate*c.speed, 0)
		c.at = now
	}
	return c.level
}

func (c *leaking) add(now time.Time, n float64) { c.level = max(c.used(now)+n, 0) }

func (c *leaking) until(now time.Time, target float64) time.Duration {
	over := c.used(now) - target
	if over <= leakingGrain {
		return 0
	}
	return time.Duration(math.Ceil(over / (c.rate * c.speed) * float64(time.Second)))
}

func (c *leaking) scale(now time.Time, f float64) {
	c.used(now)
	c.speed = f
}
