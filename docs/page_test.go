package docs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/toolchain"
)

// rule says what a command needs beside itself. It is for the commands that begin with its text.
type rule struct {
	begins     string
	why        string // it is not run; "": it is
	background bool   // it goes on until the page is done
	alone      bool   // what was in the background ends first
	until      string // of one in the background: what it has said once it works
	before     func(*page)
	after      func(p *page, said string)
}

// page is a document whose commands are run one after the other, as its reader would.
type page struct {
	*testing.T
	dir    string
	vars   []string     // environment
	shell  []string     // what later commands need of former ones: variables
	values []value      // what stands in the commands → what is meant by it here
	stops  []func()     // of what is in the background
	said   func(string) // gets what each command prints; nil: nobody does
}

type value struct{ placeholder, is string }

// set has later commands use a value where the document has a placeholder.
func (p *page) set(placeholder, is string) {
	p.values = slices.DeleteFunc(p.values, func(v value) bool { return v.placeholder == placeholder })
	p.values = append(p.values, value{placeholder, is})
}

func newPage(t *testing.T, files map[string]string) *page {
	toolchain.Need(t, toolchain.Shell())
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(bin, 0o755), os.Symlink(forebay, filepath.Join(bin, "forebay"))); err != nil {
		t.Fatal(err)
	}
	server := freeAddress(t)
	p := &page{T: t, dir: dir}
	// A key of a provider on this machine is not to be used.
	p.vars = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "FOREBAY_") || strings.HasPrefix(v, "OPENAI_") || strings.HasPrefix(v, "AZURE_") || strings.HasPrefix(v, "ANTHROPIC_")
	})
	p.vars = append(p.vars, "PATH="+bin+":"+os.Getenv("PATH"), "FOREBAY_LISTEN="+server, "FOREBAY_URL=http://"+server)
	// What is installed runs once, so nothing is compiled in advance.
	p.vars = append(p.vars, "PIP_COMPILE=0", "PYTHONDONTWRITEBYTECODE=1", "MAVEN_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
	t.Cleanup(p.stopAll)
	// An answer that is an error is one for the shell, too.
	p.shell = []string{`curl() { command curl --fail-with-body --max-time 60 "$@"; }`}
	p.set("localhost:8080", server)
	p.set("127.0.0.1:8080", server)
	p.set("127.0.0.1:8090", freeAddress(t))
	return p
}

// lastPort is the port that a server was given last. These ports are below those that the system
// gives to connections and unnamed listeners (Linux: net.ipv4.ip_local_port_range). So nobody
// takes a port before its server does.
var lastPort atomic.Int32

func init() { lastPort.Store(20_000 + rand.Int32N(10_000)) }

func freeAddress(t *testing.T) string {
	for range 1000 {
		address := fmt.Sprint("127.0.0.1:", lastPort.Add(1))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// commands returns those of a document, one for each that a reader would type.
func commands(t *testing.T, document string) (all []string) {
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	const fence = "```"
	inside := false
	var open, until string // a command that goes on in the next line, and the line that ends it, if it is not the next
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case !inside:
			inside = line == fence+"sh"
			continue
		case line == fence:
			inside = false
			if open != "" {
				t.Fatalf("%s: %q has no end", document, open)
			}
			continue
		case open == "" && (line == "" || strings.HasPrefix(line, "#")):
			continue
		}
		open += line
		if _, word, found := strings.Cut(line, "<<'"); found {
			until = strings.TrimSuffix(word, "'")
		}
		if until != "" && line != until || strings.HasSuffix(line, `\`) {
			open += "\n"
			continue
		}
		all = append(all, open)
		open, until = "", ""
	}
	return all
}

// follow runs the commands of a document. Each rule must be for one of them.
func (p *page) follow(document string, rules ...rule) {
	used := make([]bool, len(rules))
	var assignment = regexp.MustCompile(`^[A-Z]+=\S`)
	for _, command := range commands(p.T, document) {
		r := rule{}
		for i, candidate := range rules {
			if strings.HasPrefix(command, candidate.begins) && !used[i] {
				r, used[i] = candidate, true
				break
			}
		}
		if r.why != "" {
			p.Logf("not run, for %s: %s", r.why, command)
			continue
		}
		if r.before != nil {
			r.before(p)
		}
		if p.Failed() {
			p.FailNow()
		}
		meant := p.meant(command)
		switch {
		case assignment.MatchString(meant):
			p.shell = append(p.shell, meant)
		case r.background:
			if r.alone {
				p.stopAll()
			}
			p.start(meant, r.until)
		default:
			began := time.Now()
			said := p.run(meant)
			p.Logf("%5.2f s: %s", time.Since(began).Seconds(), command)
			p.learn(said)
			if p.said != nil {
				p.said(said)
			}
			if r.after != nil {
				r.after(p, said)
			}
		}
	}
	for i, r := range rules {
		if !used[i] {
			p.Errorf("%s has no command that begins with %q", document, r.begins)
		}
	}
}

// meant is the command with values for its placeholders.
func (p *page) meant(command string) string {
	for _, v := range p.values {
		command = strings.ReplaceAll(command, v.placeholder, v.is)
	}
	if i := strings.IndexRune(command, '…'); i >= 0 && !strings.Contains(command, "'{") {
		p.Fatalf("nothing is known for %q", command)
	}
	return command
}

// learn takes out of an answer what later commands name.
func (p *page) learn(said string) {
	for _, x := range []struct{ placeholder, pattern string }{
		{"LOCK_TOKEN", `"lock_token": ?"([^"]+)"`},
		{"SESSION_TOKEN", `"session_token": ?"([^"]+)"`},
		{"SEQUENCE_NUMBER", `"sequence_numbers?": ?\[?(\d+)`},
	} {
		if m := regexp.MustCompile(x.pattern).FindStringSubmatch(said); m != nil {
			p.set(x.placeholder, m[1])
		}
	}
}

func (p *page) command(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "bash", "-c", strings.Join(append(slices.Clone(p.shell), line), "\n"))
	c.Dir, c.Env = p.dir, p.vars
	// With the shell goes what it has started.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}

// run runs a command, which must succeed, and returns what it prints. It has time to compile an
// SDK with nothing compiled yet, on a machine that does much else.
func (p *page) run(line string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 10*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	c := p.command(ctx, line)
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		p.Fatalf("%s\n%s: it printed\n%s\n%s", line, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// start starts a command that ends with the test, and waits until it says that.
func (p *page) start(line, until string) {
	log, err := os.CreateTemp(p.dir, "log")
	if err != nil {
		p.Fatal(err)
	}
	c := p.command(context.Background(), line)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		p.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		c.Wait()
		close(ended)
	}()
	said := func() string {
		content, _ := os.ReadFile(log.Name())
		return string(content)
	}
	p.stops = append(p.stops, sync.OnceFunc(func() {
		syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			<-ended
			p.Errorf("%s did not stop within 30 s", line)
		}
		if p.Failed() {
			p.Logf("%s\n%s", line, said())
		}
	}))
	for deadline := time.Now().Add(3 * time.Minute); !strings.Contains(said(), until); {
		select {
		case <-ended:
			p.Fatalf("%s: ended: %s", line, said())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.Fatalf("%s: has not said %q: %s", line, until, said())
		}
	}
}

// stopAll stops what is in the background, the latest first.
func (p *page) stopAll() {
	for _, stop := range slices.Backward(p.stops) {
		stop()
	}
	p.stops = nil
}

// eventually repeats a command until what it prints matches, and returns the first group.
func (p *page) eventually(line, pattern string) string {
	p.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; <-time.After(50 * time.Millisecond) {
		said := p.run(line)
		if m := regexp.MustCompile(pattern).FindStringSubmatch(said); m != nil {
			return m[len(m)-1]
		}
		if time.Now().After(deadline) {
			p.Fatalf("%s printed nothing like %s, at last\n%s", line, pattern, said)
		}
	}
}

// receiver is an address that takes webhooks.
func receiver(t *testing.T) string {
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String()
}

const report = "The pumps of the north basin were renewed in March. They are quiet, and they use a third less power. The crew asks for two more.\n"

// serving is what a server says once it answers.
const serving = "forebay is running"

// simulating is what a simulated endpoint says.
const simulating = "tokens per minute"
