package measure

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Waits summarizes how long something waited; it sorts the durations.
func Waits(waited []time.Duration) Sample {
	slices.Sort(waited)
	return Sample{"p50 ms": Percentile(waited, 0.5), "p99 ms": Percentile(waited, 0.99), "highest ms": Percentile(waited, 1)}
}

// Percentile returns the value that a share p of the sorted durations does not exceed, in
// milliseconds.
func Percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := min(len(sorted)-1, int(math.Ceil(p*float64(len(sorted))))-1)
	return sorted[max(0, i)].Seconds() * 1000
}

// Latencies collects how long something took.
type Latencies struct {
	mu   sync.Mutex
	Took []time.Duration
}

// Add adds one; several goroutines may call it.
func (l *Latencies) Add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Took = append(l.Took, d)
}
