//go:build linux || darwin

package sqlite

import (
	"syscall"

	"github.com/forebayhq/forebay"
)

// CheckDisk tells why nothing more can be written below a folder. What cannot be found out is
// no reason.
func CheckDisk(folder string) error {
	const readOnly = 1 // ST_RDONLY, MNT_RDONLY
	var disk syscall.Statfs_t
	switch err := syscall.Statfs(folder, &disk); {
	case err != nil:
		return nil
	case disk.Flags&readOnly != 0:
		return forebay.Errorf(forebay.CodeUnavailable, "the disk is read-only")
	case disk.Bavail*uint64(disk.Bsize) < minFreeDisk:
		return forebay.Errorf(forebay.CodeStorageFull, "the disk is full")
	}
	return nil
}
