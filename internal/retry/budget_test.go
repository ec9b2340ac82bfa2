package retry

import (
	"testing"
	"time"
)

// outage simulates a minute in which every call fails: fresh calls arrive at a rate, each failure
// wants a retry, and each retry fails too. It returns the retries that the budget let through.
func outage(b *Budget, freshPerSecond int) (fresh, retries int) {
	const tick = 100 * time.Millisecond
	now := time.Unix(0, 0)
	waiting := 0
	for range 600 {
		now = now.Add(tick)
		for range freshPerSecond / 10 {
			fresh++
			waiting++
			b.Ended(false, false)
		}
		taken, _ := b.Take(now, waiting)
		retries += taken // each fails and waits again
	}
	return fresh, retries
}

func TestOutageDoesNotMultiplyLoad(t *testing.T) {
	for _, rate := range []int{10, 100, 1000} {
		b := NewBudget(Default)
		fresh, retries := outage(b, rate)
		// The share, the trickle of one a second, and the stock it starts with.
		limit := int(0.2*float64(fresh+retries)) + 60 + int(b.stock.capacity) + 1
		if retries > limit {
			t.Errorf("at %d calls a second %d of %d calls were retries; at most %d may be", rate, retries, fresh+retries, limit)
		}
		if retries < fresh/10 {
			t.Errorf("at %d calls a second only %d retries for %d calls", rate, retries, fresh)
		}
	}
}

func TestBacklogOfRetriesDrainsAfterRecovery(t *testing.T) {
	b := NewBudget(Default)
	now := time.Unix(0, 0)
	for {
		if taken, _ := b.Take(now, 1000); taken == 0 {
			break // an outage has used it up
		}
	}
	left, seconds := 2000, 0
	for ; left > 0 && seconds < 600; seconds++ {
		now = now.Add(time.Second)
		for range 20 { // calls take 50 ms
			taken, _ := b.Take(now, min(left, 4))
			left -= taken
			for range taken {
				b.Ended(true, true)
			}
		}
	}
	if seconds > 60 {
		t.Errorf("2,000 retries took %d s after the model recovered", seconds)
	}
}

func TestBucketSaysHowLongToWait(t *testing.T) {
	b := newBucket(2, 4)
	now := time.Unix(0, 0)
	if n, _ := b.take(now, 5); n != 2 {
		t.Fatalf("took %d of a full bucket of 2", n)
	}
	n, wait := b.take(now, 1)
	if n != 0 || wait != 250*time.Millisecond {
		t.Fatalf("an empty bucket gave %d and asked to wait %s", n, wait)
	}
	if n, _ := b.take(now.Add(wait), 1); n != 1 {
		t.Fatal("nothing was there after the wait it had asked for")
	}
}

// A budget paces retries at its trickle while it has no whole token, and not before it was asked.
func TestBudgetPace(t *testing.T) {
	start := time.Unix(0, 0)
	b := NewBudget(Default)
	if pace := b.Pace(start.Add(time.Hour)); pace != 0 {
		t.Errorf("before any retry: %v a second", pace)
	}
	b.Take(start, 100)
	if pace := b.Pace(start.Add(500 * time.Millisecond)); pace != trickle {
		t.Errorf("used up: %v a second", pace)
	}
	if pace := b.Pace(start.Add(time.Second)); pace != 0 {
		t.Errorf("with a token: %v a second", pace)
	}
}
