package measure

import (
	"runtime"
	"slices"
	"time"
)

// Columns that several tables have.
const (
	JobRate     = "jobs/s"           // how many jobs are done in a second
	EngineShare = "of it PostgreSQL" // of processor time: what the engine's own processes used
)

// Meter measures what this process does for some jobs.
type Meter struct {
	dir         string
	on          Engine
	begun       time.Time
	cpu         time.Duration // of this process
	engineCPU   time.Duration
	allocations uint64
	flushes     uint64
	counted     bool
}

// StartMeter begins to measure. Flushes are those of the disk under the folder.
func StartMeter(dir string, on Engine) *Meter {
	m := &Meter{dir: dir, on: on, allocations: allocations(), cpu: CPUTime(), engineCPU: on.CPU()}
	m.flushes, m.counted = diskFlushes(dir)
	m.begun = time.Now()
	return m
}

// Stop returns the meter's columns; it sorts the latencies.
func (m *Meter) Stop(jobs int, enqueue []time.Duration) Sample {
	took, n := time.Since(m.begun), float64(jobs)
	own, engine := CPUTime()-m.cpu, m.on.CPU()-m.engineCPU
	slices.Sort(enqueue)
	s := Sample{
		JobRate:           n / took.Seconds(),
		"enqueue p50 ms":  Percentile(enqueue, 0.5),
		"enqueue p99 ms":  Percentile(enqueue, 0.99),
		"CPU µs/job":      (own + engine).Seconds() * 1e6 / n,
		"allocations/job": float64(allocations()-m.allocations) / n,
	}
	if engine > 0 {
		s[EngineShare] = engine.Seconds() * 1e6 / n
	}
	if flushes, ok := diskFlushes(m.dir); ok && m.counted {
		s["disk flushes/job"] = float64(flushes-m.flushes) / n
	}
	return s
}

func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
