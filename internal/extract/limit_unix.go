//go:build linux || darwin || freebsd

package extract

import (
	"syscall"
	"time"
)

// niceness gives requests precedence over documents where processors are short.
const niceness = 5

// limitProcess limits the address space of this process, in bytes, and its processor time, in
// seconds.
func limitProcess(memory, seconds uint64) error {
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) // it only helps
	if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds + 1}); err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: memory, Max: memory})
}

// wallTime is how long a process may run that has so many seconds of processor time.
func wallTime(uint64) time.Duration { return pdfTimeout }
