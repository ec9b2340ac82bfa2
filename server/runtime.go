package server

import (
	"os"
	"runtime/debug"
)

// TuneRuntime tunes the garbage collector for a program that only serves. It collects less often
// than Go's default, which saves about a seventh of the processor time of a job. It also sets a
// soft memory limit. The variables GOGC and GOMEMLIMIT take precedence.
func TuneRuntime(o Options) {
	const percent = 400
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		// The payloads of requests and of running jobs, each read and written once more, and
		// everything else.
		debug.SetMemoryLimit(256<<20 + 4*o.WithDefaults().Limits.MemoryBytes)
	}
}
