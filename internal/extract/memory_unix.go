//go:build linux || darwin || freebsd

package extract

import "syscall"

// limitMemory bounds the address space of this process.
func limitMemory(size uint64) error {
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: size, Max: size})
}
