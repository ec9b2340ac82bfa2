//go:build !linux

package sqlite

import "os"

// lockData has no lock that SQLite's own would not meet: the one on the file beside the
// database is the only one.
func lockData(string) (f *os.File, held bool, err error) { return nil, true, nil }

func unlockData(*os.File) {}

// dataLocked knows of no lock on the file itself here.
func dataLocked(string) bool { return false }
