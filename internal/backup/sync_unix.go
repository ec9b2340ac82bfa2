//go:build unix

package backup

import (
	"errors"
	"os"
)

// syncPath makes a file, or the entries of a folder, durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return unusable("the backup cannot be made durable", err)
	}
	return nil
}
