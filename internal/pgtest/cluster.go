//go:build unix

package pgtest

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Options configure a server that a test does not share.
type Options struct {
	// Dir is where the server's folder is created, and so which disk it uses. The default is the
	// folder for temporary files.
	Dir string
	// Settings are PostgreSQL's, such as "fsync": "off", on top of the package's own.
	Settings map[string]string

	binaries string // the folder of the server's programs; "": the machine's
}

// small are the settings of every server: modest in memory, durable as in production.
var small = map[string]string{
	"fsync":                          "on",
	"synchronous_commit":             "on",
	"full_page_writes":               "on",
	"shared_buffers":                 "64MB",
	"max_connections":                "200",
	"max_wal_size":                   "512MB",
	"superuser_reserved_connections": "5",
	"log_min_messages":               "warning",
	"log_checkpoints":                "off",
	"timezone":                       "UTC",
}

const (
	superuser    = "forebay"
	startTimeout = time.Minute
	stopTimeout  = 30 * time.Second
)

// Cluster is a PostgreSQL server that can be stopped, killed and configured. Its address never
// changes. A Cluster is not safe for concurrent use.
type Cluster struct {
	folder   *folder // nil when it is another's to keep
	dir      string
	account  account
	binaries string
	password string
	port     int
	settings map[string]string

	server *exec.Cmd
	exited chan struct{} // closed once server is gone
	killed bool          // since the last start
}

// New starts a server for one test and removes it when the test ends. A failing test shows the
// end of its log.
func New(t testing.TB, settings map[string]string) *Cluster {
	t.Helper()
	c, err := Open(t.Context(), Options{Settings: settings})
	if err != nil {
		t.Fatalf("this test needs PostgreSQL: %s", err)
	}
	t.Cleanup(func() {
		if log := c.Log(); t.Failed() && log != "" {
			t.Logf("PostgreSQL said:\n%s", log)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Open starts a server. The server ends with this process, even without Close.
func Open(ctx context.Context, o Options) (*Cluster, error) {
	f, err := openFolder(o.Dir)
	if err != nil {
		return nil, err
	}
	c, err := create(ctx, f.path, o.binaries, o.Settings)
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	c.folder = f
	return c, nil
}

// Close stops the server and removes its folder.
func (c *Cluster) Close() error { return errors.Join(c.Stop(Immediate), c.folder.close()) }

// create makes a cluster in the folder and starts it.
func create(ctx context.Context, dir, programs string, settings map[string]string) (*Cluster, error) {
	c := &Cluster{dir: dir, password: rand.Text(), settings: maps.Clone(small)}
	maps.Copy(c.settings, settings)
	var err error
	if c.binaries = programs; programs == "" {
		if c.binaries, err = binaries(ctx); err != nil {
			return nil, err
		}
	}
	if c.account, err = unprivileged(); err != nil {
		return nil, err
	}
	if err := c.initialize(); err != nil {
		return nil, err
	}
	const tries = 5 // another program may take the port first
	for range tries {
		if c.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = c.Start(ctx); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func (c *Cluster) initialize() error {
	secret := filepath.Join(c.dir, "password")
	for _, prepare := range []func() error{
		func() error { return os.Mkdir(c.data(), 0o700) },
		func() error { return c.account.give(c.data()) },
		func() error { return os.WriteFile(secret, []byte(verifier(c.password)+"\n"), 0o600) },
		func() error { return c.account.give(secret) },
	} {
		if err := prepare(); err != nil {
			return fmt.Errorf("prepare a folder for PostgreSQL: %w", err)
		}
	}
	defer os.Remove(secret)
	out, err := c.account.command(c.data(), filepath.Join(c.binaries, "initdb"), "-D", c.data(), "-U", superuser,
		"--pwfile", secret, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastBytes(out))
	}
	return nil
}

// verifier is what a server keeps to check a password by (RFC 5803, as PostgreSQL writes it). It
// asks for one iteration, not for 4,096: tests connect often, and this password is not guessed.
func verifier(password string) string {
	salt := []byte(rand.Text())
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text)) // which cannot fail
		return h.Sum(nil)
	}
	salted := mac([]byte(password), string(salt)+"\x00\x00\x00\x01")
	stored := sha256.Sum256(mac(salted, "Client Key"))
	in := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", in(salt), in(stored[:]), in(mac(salted, "Server Key")))
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// URL is the address of the server's own database, as its superuser.
func (c *Cluster) URL() string {
	return (&url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, c.password), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path: "/postgres", RawQuery: "sslmode=disable",
	}).String()
}

// Database creates an empty database for one test and returns its URL. It is dropped when the
// test ends, if the server still runs.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	address, drop, err := CreateDatabase(t.Context(), c.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.Running() {
			if err := drop(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
	return address
}

// Set changes a setting from the next start on.
func (c *Cluster) Set(name, value string) { c.settings[name] = value }

// Running reports whether the server's process exists.
func (c *Cluster) Running() bool {
	if c.server == nil {
		return false
	}
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// PID is the id of the server's main process, the parent of all others; 0 if it does not run.
func (c *Cluster) PID() int {
	if !c.Running() {
		return 0
	}
	return c.server.Process.Pid
}

// Start starts the server if it does not run. It returns once the server answers: after a crash,
// once it has recovered.
func (c *Cluster) Start(ctx context.Context) error {
	if c.Running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if !c.Running() {
			if err := c.launch(); err != nil {
				return err
			}
		}
		err := ping(ctx, c.URL())
		if err == nil {
			c.killed = false
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("PostgreSQL does not answer: %w: %s", err, c.Log()), c.Stop(Immediate))
		}
		// After a kill, the old server's processes hold its resources until they notice.
		if !c.Running() && !c.killed {
			return fmt.Errorf("PostgreSQL does not start: %s", c.Log())
		}
	}
}

func (c *Cluster) launch() error {
	log, err := os.OpenFile(c.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"-D", c.data(), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "port=" + strconv.Itoa(c.port)}
	for _, name := range slices.Sorted(maps.Keys(c.settings)) {
		args = append(args, "-c", name+"="+c.settings[name])
	}
	cmd := c.account.command(c.data(), filepath.Join(c.binaries, "postgres"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	exited := make(chan struct{})
	c.server, c.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
	}()
	return nil
}

// Mode is a way to stop a server.
type Mode syscall.Signal

// The ways to stop a server.
const (
	Fast      = Mode(syscall.SIGINT)  // clients are disconnected, their transactions rolled back, and everything is written
	Immediate = Mode(syscall.SIGQUIT) // every process ends at once; the next start recovers
	Crash     = Mode(syscall.SIGKILL) // of the postmaster alone; its other processes notice by themselves
)

// Stop stops the server, if it runs, and waits until its main process is gone.
func (c *Cluster) Stop(mode Mode) error {
	if !c.Running() {
		return nil
	}
	c.killed = c.killed || mode == Crash
	if err := c.server.Process.Signal(syscall.Signal(mode)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-c.exited:
		return nil
	case <-timer.C:
		_ = c.server.Process.Kill() // it is gone then, whatever the error
		<-c.exited
		c.killed = true
		return fmt.Errorf("PostgreSQL did not stop within %s: %s", stopTimeout, c.Log())
	}
}

// Restart stops the server in the given way and starts it again.
func (c *Cluster) Restart(ctx context.Context, mode Mode) error {
	return errors.Join(c.Stop(mode), c.Start(ctx))
}

// Log is the end of the server's log.
func (c *Cluster) Log() string {
	said, err := os.ReadFile(c.log())
	if err != nil {
		return ""
	}
	return string(lastBytes(said))
}

func (c *Cluster) data() string { return filepath.Join(c.dir, dataFolder) }
func (c *Cluster) log() string  { return filepath.Join(c.dir, "log") }
