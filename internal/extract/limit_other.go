//go:build !linux && !darwin && !freebsd

package extract

import "time"

// limitProcess does nothing. On this system only wall time limits the process.
func limitProcess(uint64, uint64) error { return nil }

// wallTime is how long a process may run that has so many seconds of processor time.
func wallTime(seconds uint64) time.Duration { return time.Duration(seconds) * time.Second }
