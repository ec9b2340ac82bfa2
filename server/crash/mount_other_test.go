//go:build unix && !linux

package crash_test

import "errors"

func mountSmall(string, int) error { return errors.New("only on Linux") }
