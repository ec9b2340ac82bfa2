//go:build unix

// Package docs_test runs every command of the documents against real processes.
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

	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// forebay is the program, built once.
var forebay string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "forebay-docs")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	forebay = filepath.Join(dir, "forebay")
	if out, err := exec.Command("go", "build", "-o", forebay, "../cmd/forebay").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s\n%s", err, out)
		return 1
	}
	return m.Run()
}

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

// run runs a command, which must succeed, and returns what it prints.
func (p *page) run(line string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 5*time.Minute)
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

func TestReadme(t *testing.T) {
	t.Parallel()
	p := newPage(t, map[string]string{"report.txt": report})
	p.set("bin/forebay", "forebay")
	p.follow("../README.md",
		rule{begins: "make demo", why: "the demo has tests of its own"},
		rule{begins: "make test", why: "this is one of those tests"},
		rule{begins: "make build", why: "this test has built the program"},
		rule{begins: "bin/forebay serve", background: true, until: serving},
	)
}

// TestDashboard finds the dashboard where its document says, open until there is a key.
func TestDashboard(t *testing.T) {
	t.Parallel()
	p := newPage(t, nil)
	sees := func(path, want string) {
		p.Helper()
		p.eventually(p.meant("command curl -si -H 'Accept: text/html' http://127.0.0.1:8080"+path), want)
	}
	p.follow("dashboard.md",
		rule{begins: "make dashboard", why: "the demo has tests of its own"},
		rule{begins: "forebay serve", background: true, until: serving},
		rule{begins: "forebay keys create", before: func(*page) {
			sees("/", `(?i)location: /ui/`)
			sees("/ui/", `HTTP/1.1 200 `)
		}, after: func(*page, string) { sees("/ui/", `HTTP/1.1 401 `) }},
	)
}

// TestGuide follows the guide with a model simulator in place of a provider.
func TestGuide(t *testing.T) {
	t.Parallel()
	p := newPage(t, map[string]string{
		"report.txt": report, "mended.txt": report, "corrected.json": `{"order": 7}`, "forebay.yaml": "database: sqlite:forebay.db\n",
	})
	p.start(p.meant("forebay sim --listen 127.0.0.1:8090"), simulating)
	endpoint := "http://" + p.meant("127.0.0.1:8090")
	p.vars = append(p.vars, "OPENAI_API_KEY=any", "OPENAI_BASE_URL="+endpoint+"/v1",
		"FOREBAY_WEBHOOKS__ALLOW_HTTP=true", "FOREBAY_WEBHOOKS__ALLOW_ADDRESSES=127.0.0.0/8")
	faults := func(what string) { p.run("curl -s -X PUT '" + endpoint + "/_sim/faults' -d '" + what + "'") }
	p.follow("guide.md",
		rule{begins: "forebay serve", background: true, until: serving},
		rule{begins: "forebay dlq list", before: func(p *page) {
			faults(`[{"errors": {"500": 1}}]`)
			p.run("forebay submit summarize --file report.txt --max-attempts 1")
			p.set("JOB", p.eventually("forebay dlq list -o jsonl", `"job_id":"(job_[^"]+)"`))
			faults("none")
		}},
		rule{begins: "forebay dlq redrive JOB", before: func(p *page) {
			// It was sent back by its reason before: it is another one that is mended.
			faults(`[{"errors": {"500": 1}}]`)
			p.run("forebay submit summarize --file report.txt --max-attempts 1")
			p.set("JOB", p.eventually("forebay dlq list -o jsonl", `"job_id":"(job_[^"]+)"`))
			faults("none")
		}, after: func(p *page, _ string) {
			p.eventually(p.meant("forebay jobs get JOB -o json"), `"status": ?"succeeded"`)
		}},
		rule{begins: "forebay deployments list", after: func(p *page, said string) {
			p.set(" east", " "+strings.Fields(strings.Split(said, "\n")[1])[0])
		}},
		rule{begins: "forebay messages peek", before: func(p *page) {
			p.run(`curl -s -X POST $U/messages -H "$J" -d '{"body":"{\"order\": \"seven\"}"}'`)
			p.learn(p.run(`curl -s -X POST $U/messages/receive -H "$J" -d '{"wait":"20s"}'`))
			p.run(p.meant(`curl -s -X POST $U/locks/LOCK_TOKEN/dead-letter -H "$J" -d '{"reason":"Malformed"}'`))
			p.set("4711", p.eventually(`forebay messages peek 'mail/$deadletterqueue' -o jsonl`, `"sequence_number":(\d+)`))
		}},
		rule{begins: "forebay webhooks create", before: func(p *page) { p.set("https://billing.example.com", receiver(p.T)) }},
		rule{begins: "forebay keys create --scopes admin", before: func(p *page) { p.set("fb_…", "") }, after: func(p *page, said string) {
			p.vars = append(p.vars, "FOREBAY_API_KEY="+regexp.MustCompile(`fb_\w+`).FindString(said))
		}},
		rule{begins: "forebay keys create --tenant acme --scopes", after: func(p *page, said string) { p.set("fb_…", regexp.MustCompile(`fb_\w+`).FindString(said)) }},
		rule{begins: "forebay keys create --tenant acme --daily-usd", after: func(p *page, said string) {
			p.set("key_…", regexp.MustCompile(`key_\w+`).FindString(said))
		}},
		rule{begins: "forebay queues show drafts", after: func(p *page, said string) {
			p.set("ETAG", regexp.MustCompile(`"etag": *"\\"([^"\\]+)`).FindStringSubmatch(said)[1])
		}},
		rule{begins: "forebay audit verify   ", after: func(p *page, said string) {
			p.set("412:9f86d0…", regexp.MustCompile(`\d+:[0-9a-f]{64}`).FindString(said))
		}},
		rule{begins: "forebay backup --config", before: func(p *page) { p.set("/backups/", filepath.Join(p.dir, "backup-")) }},
	)
}

func TestSim(t *testing.T) {
	t.Parallel()
	p := newPage(t, nil)
	p.set("sim --tokens", p.meant("sim --listen 127.0.0.1:8090 --tokens"))
	p.write("sim.yaml", shown(t, "sim.md", "# sim.yaml\n"))
	p.follow("sim.md",
		rule{begins: "forebay sim --tokens", background: true, until: simulating},
		rule{begins: "forebay serve", background: true, until: serving},
		rule{begins: "forebay sim --config", background: true, alone: true, until: simulating},
	)
}

// shown is the piece of YAML of a document that begins so.
func shown(t *testing.T, document, begins string) string {
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	const fence = "```"
	_, piece, found := strings.Cut(string(content), fence+"yaml\n"+begins)
	piece, _, ended := strings.Cut(piece, fence)
	if !found || !ended {
		t.Fatalf("%s shows no %q", document, begins)
	}
	return begins + piece
}

// write writes a file, with values for its placeholders.
func (p *page) write(name, content string) {
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(p.meant(content)), 0o644); err != nil {
		p.Fatal(err)
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	pdf, err := os.ReadFile("../internal/extract/testdata/" + "pages.pdf")
	if err != nil {
		t.Fatal(err)
	}
	p := newPage(t, map[string]string{"report.pdf": string(pdf), "lease.md": "# Lease\n\nThe tenant pays for repairs.\n", "inbox/note.txt": report})
	p.start("forebay serve", serving)
	p.follow("documents.md",
		rule{begins: "forebay watch", background: true, until: "note.txt"},
		rule{begins: "curl -s localhost:8080/v1/documents -H 'Content-Type: application/json'", why: "want of an object storage: the folder's sources have tests of their own"},
	)
}

// TestDurableTask runs the programs as a reader would: with what their languages install.
func TestDurableTask(t *testing.T) {
	t.Parallel()
	if err := toolchain.Ensure(t.Context(), toolchain.Node(), toolchain.Python(), toolchain.JDK()); err != nil {
		t.Fatal(err)
	}
	p := newPage(t, nil)
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	p.copyExamples("durabletask/requirements.txt", "durabletask/program.py", "durabletask/javascript/package.json",
		"durabletask/javascript/package-lock.json", "durabletask/javascript/program.js", "durabletask/java/pom.xml",
		"durabletask/java/src/main/java/Program.java")
	grpc := freeAddress(t)
	p.set("127.0.0.1:4001", grpc)
	p.set("localhost:4001", grpc)
	p.set("go run ./", "go -C "+repository+" run ./")
	p.set("node program.js", toolchain.NodeFor(t, "../examples/durabletask/javascript")+" program.js")
	p.write("forebay.yaml", shown(t, "durable-task.md", "orchestrations:\n"))
	ended := func(p *page, said string) {
		if strings.Count(said, " COMPLETED ") != 6 || strings.Count(said, " TERMINATED ") != 1 {
			p.Errorf("a program said\n%s", said)
		}
	}
	p.follow("durable-task.md",
		rule{begins: "forebay serve", background: true, until: serving},
		rule{begins: "venv/bin/python", after: ended},
		rule{begins: "(cd", after: ended},
		rule{begins: "mvn", after: ended},
		rule{begins: "go run", after: ended},
	)
}

// TestOpenAI runs the programs as a reader would.
func TestOpenAI(t *testing.T) {
	t.Parallel()
	if err := toolchain.Ensure(t.Context(), toolchain.Node(), toolchain.Python()); err != nil {
		t.Fatal(err)
	}
	ended := func(p *page, said string) {
		for _, part := range []string{"chat: ", "stream: ", "response: completed ", "batch: completed 3 of 3", "line-2"} {
			if !strings.Contains(said, part) {
				p.Errorf("a program said nothing of %q:\n%s", part, said)
			}
		}
	}
	server := rule{begins: "forebay serve", background: true, until: serving}
	p := newPage(t, nil)
	p.copyExamples("openai/python/requirements.txt", "openai/python/program.py")
	p.follow("openai-python.md", server, rule{begins: "venv/bin/python", after: ended})
	p = newPage(t, nil)
	p.copyExamples("openai/javascript/package.json", "openai/javascript/package-lock.json", "openai/javascript/program.js")
	p.set("node program.js", toolchain.NodeFor(t, "../examples/openai/javascript")+" program.js")
	p.follow("openai-javascript.md", server, rule{begins: "(cd", after: ended})
	p = newPage(t, nil)
	p.copyExamples("openai/go/go.mod", "openai/go/go.sum", "openai/go/main.go")
	p.follow("openai-go.md", server, rule{begins: "(cd", after: ended})
}

// copyExamples copies files of examples to where the commands run.
func (p *page) copyExamples(files ...string) {
	for _, file := range files {
		name := filepath.Join("examples", file)
		content, err := os.ReadFile(filepath.Join("..", name))
		to := filepath.Join(p.dir, name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o644)); err != nil {
			p.Fatal(err)
		}
	}
}

func TestTasks(t *testing.T) {
	t.Parallel()
	p := newPage(t, map[string]string{"forebay.yaml": "tasks:\n  reply: {model: chat, prompt: \"Reply to {{.text}}\"}\n"})
	p.start("forebay serve --config forebay.yaml", serving)
	p.set("TASK", "reply")
	var jobs []string
	p.said = func(said string) { jobs = append(jobs, regexp.MustCompile(`job_\w+`).FindString(said)) }
	p.follow("tasks.md")
	for _, job := range jobs {
		if got := p.run("forebay jobs get " + job + " --wait -o json"); !strings.Contains(got, `"status": "succeeded"`) {
			p.Errorf("a job ended as\n%s", got)
		}
	}
	if len(jobs) < 7 {
		p.Errorf("there were %d jobs", len(jobs))
	}
}

// TestPostgreSQL runs its command beside an empty database.
func TestPostgreSQL(t *testing.T) {
	t.Parallel()
	p := newPage(t, nil)
	p.set("postgres://forebay@db.example.com/forebay", "'"+pgtest.Database(t)+"'")
	p.follow("postgresql.md", rule{begins: "forebay serve", background: true, until: serving})
	p.run("forebay submit summarize --input 'The pumps are quiet.' --wait")
}

// TestFromAzureServiceBus imports what the configuration of Microsoft's emulator has.
func TestFromAzureServiceBus(t *testing.T) {
	t.Parallel()
	p := newPage(t, map[string]string{"Config.json": `{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "queue.1", "Properties": {"MaxDeliveryCount": 3}}]}]}}`})
	p.follow("from-azure-service-bus.md", rule{begins: "forebay serve", background: true, until: serving})
	if got := p.run("forebay queues show queue.1"); !strings.Contains(got, "queue.1") {
		p.Errorf("the queue is\n%s", got)
	}
}

// A document that gets its first command gets a test.
func TestEveryDocumentIsFollowed(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	tests, err := os.ReadFile("commands_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md") {
		if len(commands(t, page)) > 0 && !strings.Contains(string(tests), fmt.Sprintf("p.follow(%q", page)) {
			t.Errorf("no test follows %s", page)
		}
	}
}
