//go:build unix

package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/server"
)

// childVariable makes this test binary a server process of its own: it holds childOptions as JSON.
const childVariable = "FOREBAY_TEST_SERVER"

// childOptions is what tests choose of a server process.
type childOptions struct {
	Database string // a path, or a URL of PostgreSQL's
	Blob     string // "": beside the database
	Role     string
	Endpoint string // base URL of the model; "": the simulated deployment
	// Deployments serve chat, in this order; none: one at Endpoint.
	Deployments []server.Deployment
	Queue       server.Queue
	Responses   server.Queue // that of background responses
	Shutdown    time.Duration
	Functions   []string // names in childFunctions
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

// childFunctions are tasks that only a process of its own can have.
var childFunctions = map[string]func(context.Context, forebay.TaskCall) (forebay.TaskResult, error){
	"die": func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
		os.Exit(exitPoisoned)
		return forebay.TaskResult{}, nil
	},
	"count": func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
		return forebay.TaskResult{Output: json.RawMessage(strconv.Itoa(len(call.Input)))}, nil
	},
}

const (
	exitPoisoned = 7
	exitOrphaned = 8
)

func TestMain(m *testing.M) {
	if raw, ok := os.LookupEnv(childVariable); ok {
		os.Exit(runChild(raw))
	}
	os.Exit(m.Run())
}

// runChild is the main function of a server process. It prints "listening URL", or "listening
// nowhere" when the database of a worker is open. The address of a plain Service Bus endpoint
// follows the URL. It stops gracefully at SIGTERM. It takes
// commands from standard input, whose end means that the test process is gone.
func runChild(raw string) int {
	var o childOptions
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
	s, err := server.New(o.options())
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

// options are what the process's server is made with.
func (o childOptions) options() server.Options {
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
		opts.Functions = append(opts.Functions, forebay.Task{Name: name, Run: childFunctions[name]})
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

// process is a running server process.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string   // of standard output
	exited chan struct{} // closed once it is gone
	stderr *tail

	mu         sync.Mutex
	url        string
	serviceBus string // the address of the plain endpoint
}

// underKills runs a test of processes that are killed: of one on SQLite, and of two on PostgreSQL.
func underKills(t *testing.T, test func(t *testing.T, o childOptions, processes int)) {
	t.Helper()
	raced.Skip(t, raced.Processes)
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, childOptions{Database: database(t)}, 1)
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		test(t, childOptions{Database: dbtest.Postgres(t), Blob: t.TempDir()}, 2)
	})
}

// launch starts a server process; it is killed at the test's end if it still runs.
func launch(t testing.TB, o childOptions) *process {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self), lines: make(chan string, 16), exited: make(chan struct{}), stderr: &tail{}}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(raw))
	p.cmd.Dir = t.TempDir()
	p.cmd.Stderr = p.stderr
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
		p.kill()
		if said := p.stderr.String(); t.Failed() && said != "" {
			t.Logf("standard error of process %d:\n%s", p.cmd.Process.Pid, said)
		}
	})
	return p
}

// listen waits until the process listens and returns its URL, "" if it exits first.
func (p *process) listen(ctx context.Context) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.url == "" {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return ""
			}
			line, _ = strings.CutPrefix(line, "listening ")
			p.url, p.serviceBus, _ = strings.Cut(line, " ")
		case <-ctx.Done():
			return ""
		}
	}
	return p.url
}

// mustListen is listen for a process that has to.
func (p *process) mustListen(t testing.TB) string {
	t.Helper()
	url := p.listen(t.Context())
	if url == "" {
		t.Fatalf("the server process does not listen: %s", p.stderr)
	}
	return url
}

// limit bounds how large the process's files may grow; 0 lifts the bound.
func (p *process) limit(t testing.TB, bytes int64) {
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

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) } // it may be gone already

// kill ends the process at once and waits until it is gone. It returns the exit code of one that
// had ended by itself, else -1.
func (p *process) kill() int {
	p.signal(syscall.SIGKILL)
	return p.wait()
}

// wait waits until the process is gone and returns its exit code, -1 after a signal.
func (p *process) wait() int {
	for range p.lines { // what nobody has read must not hold it up
	}
	<-p.exited
	return p.cmd.ProcessState.ExitCode()
}

// stop asks for a graceful stop and waits for it.
func (p *process) stop(t testing.TB) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("after SIGTERM the server exited with %d: %s", code, p.stderr)
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 16 << 10

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p...)
	w.b = w.b[max(0, len(w.b)-tailBytes):]
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}

// database returns the path of a new database file in a folder of its own.
func database(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "forebay.db")
}
