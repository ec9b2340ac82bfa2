//go:build unix && !linux

package server_test

import "errors"

func mountSmall(string, int) error { return errors.New("only on Linux") }
