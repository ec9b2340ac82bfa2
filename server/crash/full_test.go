//go:build unix

package crash_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/server"
)

// No file of the server may grow: the same to SQLite as a disk that fails at its end.
func TestFilesThatCannotGrow(t *testing.T) {
	t.Parallel()
	o := servertest.ProcessOptions{Database: servertest.DatabaseFile(t)}
	testFullDisk(t, o, forebay.CodeUnavailable, func(p *servertest.Process) { p.Limit(t, 4096) }, func(p *servertest.Process) { p.Limit(t, 0) })
}

// A file system without a free block, where the tests may mount one.
func TestFullDisk(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	folder := t.TempDir()
	if err := mountSmall(folder, 16<<20); err != nil {
		t.Skipf("cannot mount a small file system (%s); TestFilesThatCannotGrow shows the same on any", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, 0); err != nil {
			t.Errorf("unmount: %s", err)
		}
	})
	filler := filepath.Join(folder, "filler")
	testFullDisk(t, servertest.ProcessOptions{Database: filepath.Join(folder, "forebay.db")}, forebay.CodeStorageFull,
		func(*servertest.Process) { fill(t, filler) },
		func(*servertest.Process) {
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
		})
}

// fill writes the file until no byte more fits.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// testFullDisk runs jobs on a disk that is full. Submits are refused with the code, and results
// wait. When there is space again, everything acknowledged ends without another call.
func testFullDisk(t *testing.T, o servertest.ProcessOptions, code forebay.Code, full, free func(*servertest.Process)) {
	const calls = 8
	release := make(chan struct{})
	model := modelsim.StartTest(func(c modelsim.Call) modelsim.Reply {
		if c.Marker != "later" {
			<-release
		}
		return modelsim.Reply{}
	})
	t.Cleanup(model.Close)
	o.Endpoint, o.Shutdown = model.URL(), time.Second
	o.Queue = server.Queue{Concurrency: calls, MaxDeliveryCount: 1, Retry: server.Retry{Attempts: 1}}
	p := servertest.Launch(t, o)
	s := servertest.Remote{URL: p.MustListen(t)}
	var sent []forebay.Job
	for i := range calls + 4 { // some wait in line
		sent = append(sent, s.Send(t, fmt.Sprint("full-", i)))
	}
	servertest.AwaitModel(t, model, servertest.InFlight(calls))
	full(p)

	for _, path := range []string{"/v1/jobs", "/readyz"} {
		method, body := http.MethodGet, any(nil)
		if path == "/v1/jobs" {
			method, body = http.MethodPost, servertest.Chat(modelsim.Marked("refused", "say something"))
		}
		var refused *servertest.Problem
		if _, err := s.Do(t.Context(), method, path, nil, body, nil); !errors.As(err, &refused) || refused.Code != code || refused.Status < 500 {
			t.Errorf("%s answered %v, want %s", path, err, code)
		}
	}
	close(release)
	servertest.AwaitModel(t, model, servertest.InFlight(0))
	for _, job := range sent { // what is there can be read
		if job, err := s.Job(t.Context(), job.ID); err != nil || job.Status.Terminal() {
			t.Errorf("on the full disk: %s %v", job.Status, err)
		}
	}
	// Long enough for a first try to record the results to have failed.
	if err := sleep.For(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	free(p)

	for i, job := range sent {
		job, attempts := s.MustAwait(t, job.ID)
		if calls := model.Calls(fmt.Sprint("full-", i)); job.Status != forebay.StatusSucceeded || calls != 1 || len(attempts) != 1 {
			t.Errorf("%s after %d calls, attempts %v: %+v", job.Status, calls, servertest.Outcomes(attempts), job.Error)
		}
	}
	if job, _ := s.MustAwait(t, s.Send(t, "later").ID); job.Status != forebay.StatusSucceeded {
		t.Errorf("a job sent when there was space again is %s", job.Status)
	}
	if all, err := s.List(t.Context()); err != nil || len(all) != len(sent)+1 || model.Calls("refused") != 0 {
		t.Errorf("%d jobs, %d were acknowledged: %v", len(all), len(sent)+1, err)
	}
	p.Stop(t)
	servertest.CheckIntegrity(t, o.Database)
}
