//go:build unix

package servertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// childVariable makes this test binary a server process of its own. It holds ProcessOptions as
// JSON.
const childVariable = "FOREBAY_TEST_SERVER"

// ProcessOptions is what tests choose of a server process.
type ProcessOptions struct {
	Database string // a path, or a URL of PostgreSQL's
	Blob     string // "": beside the database
	Role     string
	Endpoint string // base URL of the model; "": the simulated deployment
	// Deployments serve chat, in this order; none: one at Endpoint.
	Deployments []server.Deployment
	Queue       server.Queue
	Responses   server.Queue // that of background responses
	Shutdown    time.Duration
	Functions   []string // names in the variable Functions
	Intake      map[string]server.Intake
	Tenants     map[string]server.Tenant
	Documents   server.Documents
	Workflows   []string // their files
	Audit       server.Audit
	// Orchestrations say how these are carried out.
	Orchestrations server.Orchestrations
	Tasks          map[string]server.TaskOption
	ServiceBus     server.ServiceBus
	Price          forebay.Price // of the model behind Endpoint
	MaxOutput      int           // tokens of its answers; 0: no limit
	// Clock is by how many seconds the process's clock is ahead of ours.
	Clock int64
	// Unprivileged gives root's rights up first.
	Unprivileged bool
}

// nobody is a user who owns nothing.
const nobody = 65534

// Functions are tasks that a server process can have. "die" ends it, "count" counts the bytes of
// its input.
var Functions = map[string]func(context.Context, forebay.TaskCall) (forebay.TaskResult, error){
	"die": func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
		os.Exit(ExitPoisoned)
		return forebay.TaskResult{}, nil
	},
	"count": func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
		output, err := json.Marshal(len(call.Input))
		return forebay.TaskResult{Output: output}, err
	},
}

const (
	// ExitPoisoned is the exit code of a process that had a job of the function "die".
	ExitPoisoned = 7
	exitOrphaned = 8
)

// Main runs the tests, or the server process that this run of the test binary is. It returns the
// exit code. TestMain calls it.
func Main(m *testing.M) int {
	if raw, ok := os.LookupEnv(childVariable); ok {
		return runChild(raw)
	}
	return m.Run()
}

// runChild is the main function of a server process. It prints "listening URL", or "listening
// nowhere" when the database of a worker is open. The address of a plain Service Bus endpoint
// follows the URL. It stops gracefully at SIGTERM. It takes commands from standard input, whose
// end means that the test process is gone.
func runChild(raw string) int {
	var o ProcessOptions
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if o.Clock != 0 {
		if err := skewClock(o.Clock); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	if o.Unprivileged && os.Getuid() == 0 {
		if err := syscall.Setuid(nobody); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	// Beyond RLIMIT_FSIZE a write then fails, as it does on a full disk, instead of ending the
	// process.
	signal.Ignore(syscall.SIGXFSZ)
	go obey()
	s, err := server.New(o.Options())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if o.Role == server.RoleWorker || o.Role == server.RoleRetryWorker {
		fmt.Fprintln(os.Stdout, "listening nowhere")
	}
	go func() {
		if addr := s.Addr(ctx); addr != nil {
			line := "listening http://" + addr.String()
			if _, plain := s.ServiceBusAddr(ctx); plain != nil {
				line += " " + plain.String()
			}
			fmt.Fprintln(os.Stdout, line)
		}
	}()
	if err := s.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Options are what the process's server is made with.
func (o ProcessOptions) Options() server.Options {
	opts := server.Options{
		Database: o.Database, Blob: o.Blob, Role: o.Role, Listen: "127.0.0.1:0", ShutdownTimeout: o.Shutdown, Intake: o.Intake, Tenants: o.Tenants, Tasks: o.Tasks, Documents: o.Documents,
		Workflows: o.Workflows, Audit: o.Audit, Orchestrations: o.Orchestrations, ServiceBus: o.ServiceBus,
		Log: server.Log{Level: "warn", Format: "json"}, Queues: map[string]server.Queue{forebay.DefaultQueue: o.Queue, server.ResponsesQueue: o.Responses, server.BatchesQueue: o.Queue},
	}
	if !strings.Contains(o.Database, "://") {
		opts.Database = "sqlite:" + o.Database
	}
	if o.Endpoint != "" {
		opts.Deployments = []server.Deployment{{Name: "simulated", Provider: server.ProviderOpenAI, Endpoint: o.Endpoint, Model: "test",
			Price: o.Price, MaxOutputTokens: o.MaxOutput}}
	}
	for _, d := range o.Deployments {
		d.APIKey = "any"
		opts.Deployments = append(opts.Deployments, d)
	}
	for _, name := range o.Functions {
		opts.Functions = append(opts.Functions, forebay.Task{Name: name, Run: Functions[name]})
	}
	return opts
}

// obey sets the size that files may grow to: "limit BYTES", or "limit off".
func obey() {
	var original syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &original); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		limit := original
		if n, err := strconv.ParseUint(strings.TrimPrefix(lines.Text(), "limit "), 10, 63); err == nil {
			limit.Cur = n
		}
		err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
		fmt.Fprintln(os.Stdout, "limited", err)
	}
	os.Exit(exitOrphaned)
}

// Process is a running server process. What it writes to standard error is kept.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string   // of standard output
	exited chan struct{} // closed once it is gone
	Stderr *Tail

	mu         sync.Mutex
	url        string
	ServiceBus string // the address of the plain endpoint
}

// Launch starts a server process; it is killed at the test's end if it still runs.
func Launch(t testing.TB, o ProcessOptions) *Process {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{cmd: exec.Command(self), lines: make(chan string, 16), exited: make(chan struct{}), Stderr: &Tail{}}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(raw))
	p.cmd.Dir = t.TempDir()
	p.cmd.Stderr = p.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text()
		}
		close(p.lines)
		_ = p.cmd.Wait() // the exit code is in ProcessState
	}()
	t.Cleanup(func() {
		p.Kill()
		if said := p.Stderr.String(); t.Failed() && said != "" {
			t.Logf("standard error of process %d:\n%s", p.cmd.Process.Pid, said)
		}
	})
	return p
}

// Listen waits until the process listens and returns its URL, "" if it exits first.
func (p *Process) Listen(ctx context.Context) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.url == "" {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return ""
			}
			line, _ = strings.CutPrefix(line, "listening ")
			p.url, p.ServiceBus, _ = strings.Cut(line, " ")
		case <-ctx.Done():
			return ""
		}
	}
	return p.url
}

// MustListen is Listen for a process that has to.
func (p *Process) MustListen(t testing.TB) string {
	t.Helper()
	url := p.Listen(t.Context())
	if url == "" {
		t.Fatalf("the server process does not listen: %s", p.Stderr)
	}
	return url
}

// Limit bounds how large the process's files may grow; 0 lifts the bound.
func (p *Process) Limit(t testing.TB, bytes int64) {
	t.Helper()
	value := "off"
	if bytes > 0 {
		value = strconv.FormatInt(bytes, 10)
	}
	if _, err := io.WriteString(p.stdin, "limit "+value+"\n"); err != nil {
		t.Fatal(err)
	}
	if answer := <-p.lines; answer != "limited <nil>" {
		t.Fatalf("cannot limit the size of files: %q", answer)
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) } // it may be gone already

// Kill ends the process at once and waits until it is gone. It returns the exit code of one that
// had ended by itself, else -1.
func (p *Process) Kill() int {
	p.Signal(syscall.SIGKILL)
	return p.Wait()
}

// Wait waits until the process is gone and returns its exit code, -1 after a signal.
func (p *Process) Wait() int {
	for range p.lines { // what nobody has read must not hold it up
	}
	<-p.exited
	return p.cmd.ProcessState.ExitCode()
}

// Stop asks for a graceful stop and waits for it.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 0 {
		t.Errorf("after SIGTERM the server exited with %d: %s", code, p.Stderr)
	}
}

// Tail keeps the end of what is written to it.
type Tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 16 << 10

// Write keeps the end of p.
func (w *Tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p...)
	w.b = w.b[max(0, len(w.b)-tailBytes):]
	return len(p), nil
}

func (w *Tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}
