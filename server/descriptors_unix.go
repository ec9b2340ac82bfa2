//go:build unix

package server

import "syscall"

// fileDescriptors returns how many descriptors this process may have open; 0: not known.
func fileDescriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // FreeBSD has an int64
}
