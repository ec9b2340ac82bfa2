//go:build !unix

package pgtest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
)

// shared fails with advice, because no server can be started here.
func shared(context.Context) (string, error) {
	return "", fmt.Errorf("on %s set %s to the URL of a server on which databases may be created", runtime.GOOS, Variable)
}

// Ensure fails if the package cannot be used here.
func Ensure(ctx context.Context) error {
	if os.Getenv(Variable) != "" {
		return nil
	}
	_, err := shared(ctx)
	return err
}

// VectorDatabase creates an empty database for one test. The server must have pgvector.
func VectorDatabase(t testing.TB) string {
	t.Helper()
	return Database(t)
}
