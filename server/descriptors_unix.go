//go:build unix

package server

import "syscall"

// fileDescriptors returns how many descriptors this process may open, or 0 if that is unknown.
func fileDescriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // FreeBSD has an int64
}
