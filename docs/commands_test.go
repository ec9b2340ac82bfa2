//go:build unix

// Package docs_test runs every command of the documents against real processes.
package docs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", forebay, "../cmd/forebay").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s\n%s", err, out)
		return 1
	}
	return m.Run()
}

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
