//go:build linux || darwin || freebsd

package extract

import (
	"syscall"
	"time"
)

// niceness has requests come before documents where processors are short.
const niceness = 5

// limitProcess bounds the address space and the processor time of this process, in bytes and seconds.
func limitProcess(memory, seconds uint64) error {
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) // it only helps
	if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds + 1}); err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: memory, Max: memory})
}

// wallTime is how long a process may take that has so many seconds of processor time.
func wallTime(uint64) time.Duration { return pdfTimeout }
