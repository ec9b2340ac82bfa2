//go:build !unix

package pgtest

import (
	"context"
	"fmt"
	"runtime"
)

// shared says what to do where no server is started.
func shared(context.Context) (string, error) {
	return "", fmt.Errorf("on %s set %s to the URL of a server on which databases may be created", runtime.GOOS, Variable)
}
