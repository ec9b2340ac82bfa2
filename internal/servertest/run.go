package servertest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// Run runs a server until stop is called.
func Run(t testing.TB, o server.Options) (s *server.Server, stop func()) {
	t.Helper()
	s, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// WriteWorkflow writes a declared workflow to a file, and returns its path.
func WriteWorkflow(t testing.TB, text string) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// StartWorkflow starts an instance of a workflow for the default tenant, and returns its id.
func StartWorkflow(t *testing.T, s *server.Server, name string, input any) string {
	t.Helper()
	id, err := s.StartOrchestration(t.Context(), forebay.DefaultTenant, name, "", input)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// EndOfWorkflow waits until an instance ends, which has to be with the status.
func EndOfWorkflow(t *testing.T, s *server.Server, id string, status forebay.OrchestrationStatus) forebay.Orchestration {
	t.Helper()
	o, err := s.WaitOrchestration(t.Context(), forebay.DefaultTenant, id, time.Minute)
	if err != nil || o.Status != status {
		t.Fatalf("%s is %s, %+v, %s: %v", id, o.Status, o.Failure, o.CustomStatus, err)
	}
	return o
}

// DatabaseFile returns the path of a new database file in a folder of its own.
func DatabaseFile(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "forebay.db")
}
