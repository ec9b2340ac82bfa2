package crash_test

import (
	"strconv"
	"syscall"
)

// mountSmall mounts an empty file system of that size.
func mountSmall(folder string, bytes int) error {
	return syscall.Mount("tmpfs", folder, "tmpfs", 0, "size="+strconv.Itoa(bytes))
}
