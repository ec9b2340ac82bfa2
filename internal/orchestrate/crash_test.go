//go:build unix

package orchestrate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/raced"
)

// childVariable makes this test binary a process that executes orchestrations. It holds a child
// as JSON.
const childVariable = "FOREBAY_TEST_ORCHESTRATE"

type child struct {
	Where             db.Options
	Instances, FanOut int
	Log               string // a file that gets a line for each call of an activity
	Blobs             string // the folder of large payloads
}

// counted is the result of an activity. One in 25 is large.
type counted struct {
	N   int
	Pad string
}

func TestMain(m *testing.M) {
	if raw, ok := os.LookupEnv(childVariable); ok {
		if err := runChild(raw); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runChild starts the missing instances, executes all, and says "done" once they have ended. It
// ends with its standard input.
func runChild(raw string) error {
	var c child
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		return err
	}
	calls, err := os.OpenFile(c.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	r := NewRegistry()
	if err := errors.Join(r.AddActivity("count", c.countCalls(calls)), r.AddOrchestrator("fan", "", c.fan)); err != nil {
		return err
	}
	s, err := openStores(context.Background(), c.Where)
	if err != nil {
		return err
	}
	blobs, err := blob.Open(context.Background(), c.Blobs)
	if err != nil {
		return err
	}
	defer blobs.Close()
	service := New(Options{Store: s.Orchestrations, Blobs: blobs, Registry: r, Lock: time.Second, Grace: time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		service.Run(ctx)
	}()
	for i := range c.Instances {
		// The id of an instance that has ended would start another.
		_, err := service.Get(ctx, tenant, fmt.Sprint(i))
		if forebay.CodeOf(err) == forebay.CodeNotFound {
			_, err = service.Start(ctx, tenant, StartRequest{Name: "fan", ID: fmt.Sprint(i)})
		}
		if err != nil && forebay.CodeOf(err) != forebay.CodeConflict {
			return err
		}
	}
	for i := range c.Instances {
		for o := (forebay.Orchestration{}); !o.Status.Terminal(); {
			if o, err = service.Wait(ctx, tenant, fmt.Sprint(i), time.Minute); err != nil {
				return err
			}
		}
	}
	fmt.Println("done")
	<-done
	return s.DB.Close()
}

// countCalls notes each call. One activity in five fails at its first attempt.
func (c child) countCalls(calls *os.File) ActivityFunc {
	return func(ctx context.Context, input json.RawMessage) (any, error) {
		call, _ := CallOf(ctx)
		if _, err := fmt.Fprintf(calls, "%s/%d/%d\n", call.InstanceID, call.EventID, call.Attempt); err != nil {
			return nil, err
		}
		if call.EventID%5 == 0 && call.Attempt == 1 {
			return nil, errors.New("the first time")
		}
		var result counted
		if call.EventID%25 == 0 {
			result.Pad = large("r")
		}
		return result, json.Unmarshal(input, &result.N)
	}
}

func (c child) fan(ctx *task.WorkflowContext) (any, error) {
	tasks := make([]task.Task, c.FanOut)
	for i := range tasks {
		tasks[i] = activity(ctx, "count", i, forebay.RetryPolicy{MaxAttempts: 3, First: 20 * time.Millisecond})
	}
	sum := 0
	for _, t := range tasks {
		var result counted
		if err := t.Await(&result); err != nil {
			return nil, err
		}
		sum += result.N
	}
	return sum, nil
}

// childProcess is a running child.
type childProcess struct {
	command *exec.Cmd
	stdin   io.Closer
	done    chan bool // true: it said so, false: it ended before
}

func startChild(t *testing.T, c child) *childProcess {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &childProcess{command: exec.Command(os.Args[0]), done: make(chan bool, 1)}
	p.command.Env = append(os.Environ(), childVariable+"="+string(raw))
	p.command.Stderr = t.Output()
	stdin, err := p.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		p.done <- line == "done\n"
	}()
	return p
}

func (p *childProcess) kill() {
	_ = p.command.Process.Kill() // it may have ended by itself
	_ = p.command.Wait()
}

// TestSurvivesKills kills processes at random while instances fan out over activities, some of
// which fail. Each instance completes, and each activity has one result in its history. Large
// results in use are there, and the sweep finds all others.
func TestSurvivesKills(t *testing.T) {
	raced.Skip(t, raced.Processes)
	onBoth(t, func(t *testing.T, where db.Options) {
		c := child{Where: where, Instances: 200, FanOut: 50, Log: filepath.Join(t.TempDir(), "calls"), Blobs: t.TempDir()}
		kills, processes := 10, 1
		if testing.Short() {
			c.Instances, kills = 40, 4
		}
		if where.URL != "" {
			c.Instances, processes = c.Instances/2, 2
		}
		running := make([]*childProcess, processes)
		for i := range running {
			running[i] = startChild(t, c)
		}
		for range kills {
			victim := rand.IntN(processes)
			select {
			case <-time.After(time.Duration(100+rand.IntN(400)) * time.Millisecond):
			case ok := <-running[victim].done:
				if !ok {
					t.Fatal("a process ended by itself")
				}
			}
			running[victim].kill()
			running[victim] = startChild(t, c)
		}
		for _, p := range running {
			select {
			case ok := <-p.done:
				if !ok {
					t.Fatal("a process ended by itself")
				}
			case <-time.After(3 * time.Minute):
				t.Fatal("instances do not end")
			}
			p.stdin.Close()
			if err := p.command.Wait(); err != nil {
				t.Error(err)
			}
		}
		checkKilled(t, c, kills)
	})
}

func checkKilled(t *testing.T, c child, kills int) {
	s, err := openStores(t.Context(), c.Where)
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	blobs := openFolderAt(t, c.Blobs)
	service := New(Options{Store: s.Orchestrations, Blobs: blobs})
	recorded, lost := 0, 0
	for i := range c.Instances {
		id := fmt.Sprint(i)
		o, err := service.Get(t.Context(), tenant, id)
		if err != nil || o.Status != forebay.OrchestrationCompleted || string(o.Output) != fmt.Sprint(c.FanOut*(c.FanOut-1)/2) {
			t.Fatalf("%+v: %v", o, err)
		}
		past, err := service.History(t.Context(), tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		results := map[int]int{}
		for _, e := range past {
			switch e.Type {
			case "TaskCompleted":
				results[*e.ScheduledID]++
			case "TaskFailed":
				t.Errorf("%s heard of a failure that was tried again: %+v", id, e)
			}
		}
		for event := range c.FanOut {
			if results[event] != 1 {
				t.Errorf("activity %d of %s has %d results", event, id, results[event])
			}
		}
		attempts, err := service.Attempts(t.Context(), tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attempts {
			if a.Outcome == ActivityLost {
				lost++
			} else {
				recorded++
			}
		}
	}
	calls, err := os.ReadFile(c.Log)
	if err != nil {
		t.Fatal(err)
	}
	freed, err := service.RemoveFreed(t.Context(), s.DB.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	used := 0
	orphans, err := blobs.Sweep(t.Context(), time.Now().Add(time.Hour), func(keys []string) (map[string]bool, error) {
		inUse := map[string]bool{}
		err := s.Orchestrations.BlobsInUse(t.Context(), keys, func(key string) { inUse[key] = true })
		used += len(inUse)
		return inUse, err
	})
	if left := len(blobs.keys(t)); err != nil || used < c.Instances || left != used {
		t.Errorf("%d payloads are in use, %d are stored after %d were removed: %v", used, left, orphans, err)
	}
	repeated := strings.Count(string(calls), "\n") - recorded
	t.Logf("%d instances of %d activities, %d kills: %d attempts recorded, %d lost, %d calls repeated, %d payloads in use, %d freed, %d that were left", c.Instances, c.FanOut, kills, recorded, lost, repeated, used, freed, orphans)
	if most := kills * 256; repeated < 0 || repeated > most {
		t.Errorf("%d calls were repeated; those under way at %d kills are at most %d", repeated, kills, most)
	}
}
