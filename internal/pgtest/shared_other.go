//go:build !unix

package pgtest

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

// shared says what to do where no server is started.
func shared(context.Context) (string, error) {
	return "", fmt.Errorf("on %s set %s to the URL of a server on which databases may be created", runtime.GOOS, Variable)
}

// Ensure tells whether the package can be used here.
func Ensure(ctx context.Context) error {
	if os.Getenv(Variable) != "" {
		return nil
	}
	_, err := shared(ctx)
	return err
}
