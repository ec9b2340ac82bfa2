//go:build hostile

package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
)

// Whatever the server writes is its owner's only, however open the umask is.
func TestFileModes(t *testing.T) {
	reportTest(t)
	defer syscall.Umask(syscall.Umask(0)) // processes that are started inherit it
	dir := t.TempDir()
	database := filepath.Join(dir, "forebay.db")
	out, err := command(t.Context(), dir, "keys", "create", "--database", "sqlite:"+database, "-o", "json").Output()
	var key forebay.APIKey
	if err != nil || json.Unmarshal(out, &key) != nil {
		t.Fatalf("create a key: %v %s", err, out)
	}
	ownerOnly(t, dir, 1)
	if err := os.Chmod(database, 0o644); err != nil { // as an older version may have made it
		t.Fatal(err)
	}
	target := Start(t, TargetOptions{Config: settings{"database": "sqlite:" + database, "blob": nil}})
	job := target.as(key.Key).submit(t, forebay.SubmitRequest{Task: "chat", Input: text(strings.Repeat("large ", 30_000))})
	target.as(key.Key).ended(t, job.ID)
	// The database, its log, shared memory and lock, and what is in the blob folder.
	ownerOnly(t, dir, 5)
}

// ownerOnly fails for each file and folder below dir that others may use.
func ownerOnly(t *testing.T, dir string, least int) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		seen++
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %s", strings.TrimPrefix(name, dir), info.Mode())
		}
		return nil
	})
	if err != nil || seen < least {
		t.Errorf("%d files below the database's folder, %v", seen, err)
	}
}

// Scores of a search by words do not tell what other tenants store.
func TestSearchScores(t *testing.T) {
	onEngines(t, func(t *testing.T, postgres bool) {
		reportTest(t)
		target := Start(t, TargetOptions{Postgres: postgres})
		add := func(p Party, body string) {
			id := unique("d")
			if got := p.send(t.Context(), "POST", "/v1/documents?id="+id, "text/plain", []byte(body)); got.Status != http.StatusAccepted {
				t.Fatal(got)
			}
			var d forebay.Document
			target.until("the document is ready", patience, func() bool {
				p.must(t, "GET", "/v1/documents/"+id, nil, &d)
				return d.Searchable
			})
		}
		search := func() (scores []string) {
			for _, query := range []string{"merger", "merger zebra", "quarterly figures"} {
				var found forebay.SearchResults
				target.victim().must(t, "POST", "/v1/search", forebay.SearchRequest{Query: query, Mode: forebay.SearchKeyword}, &found)
				for _, item := range found.Items {
					scores = append(scores, fmt.Sprintf("%s %s %v", query, item.DocumentID, item.Score))
				}
			}
			return scores
		}
		for range 12 { // so that the words of the queries are rare among the victim's own
			add(target.victim(), "Minutes of a meeting about "+unique("w"))
		}
		for _, body := range []string{"The merger with zebra is planned for spring.", "Quarterly figures of the zebra.", "Nothing about any merger, but the quarterly figures."} {
			add(target.victim(), body)
		}
		before := search()
		if len(before) < 5 {
			t.Fatalf("the searches find %q", before)
		}
		for i := range 16 {
			add(target.attacker(), strings.Repeat("merger zebra ", i)+"quarterly "+unique("w"))
		}
		if after := search(); !reflect.DeepEqual(after, before) {
			t.Errorf("scores change with what another tenant stores: %q, before %q", after, before)
		}
	})
}

// A tenant does not see the credentials that an HTTP function gets and echoes.
func TestFunctionThatEchoes(t *testing.T) {
	reportTest(t)
	const secret = "echo-me-not-4f1d8c7a92"
	functions := map[string]http.HandlerFunc{
		"text": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "you sent ", r.Header.Get("Authorization"))
		},
		"json": func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(r.Header) },
		"malformed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "{", r.Header)
		},
		"refused": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, fmt.Sprint(r.Header), http.StatusBadRequest)
		},
		"broken": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, fmt.Sprint(r.Header), http.StatusBadGateway)
		},
		"moved": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere?key="+r.Header.Get("Authorization"), http.StatusFound)
		},
	}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if handle, ok := functions[strings.TrimPrefix(r.URL.Path, "/")]; ok {
			handle(w, r)
		}
	}))
	defer endpoint.Close()
	tasks := settings{}
	for name := range functions {
		tasks["echo-"+name] = settings{"http": settings{"url": endpoint.URL + "/" + name, "headers": settings{"Authorization": "Bearer " + secret}}}
	}
	target := Start(t, TargetOptions{Config: settings{"tasks": tasks}})
	p, once := target.attacker(), 1
	for name := range functions {
		job := p.submit(t, forebay.SubmitRequest{Task: "echo-" + name, Input: text("x"), MaxAttempts: &once})
		p.ended(t, job.ID)
		for _, path := range []string{"", "/attempts", "/events", "/result"} {
			if got := p.call(t.Context(), "GET", "/v1/jobs/"+job.ID+path, nil); strings.Contains(string(got.Body), secret) {
				t.Errorf("GET /v1/jobs/{id}%s of %s shows the credential: %s", path, name, got)
			}
		}
		if got := p.call(t.Context(), "GET", "/v1/queues/default/dead-letters/"+job.ID, nil); strings.Contains(string(got.Body), secret) {
			t.Errorf("the dead letter of %s shows the credential: %s", name, got)
		}
	}
	if strings.Contains(target.log.String(), secret) {
		t.Error("the server's log shows the credential")
	}
}

// What a model or another person wrote cannot control the terminal that it is shown on.
func TestTerminalOutput(t *testing.T) {
	reportTest(t)
	const evil = "\x1b[2J\x1b]0;title\a\u202etxt.exe\u2066\u009b31m"
	target := Start(t, TargetOptions{Model: func(c modelsim.Call) modelsim.Reply {
		if c.Marker == "refuse" {
			return modelsim.Reply{Status: http.StatusBadRequest, Code: "content_filter", Message: evil}
		}
		return modelsim.Reply{Text: evil}
	}})
	p := target.attacker()
	good := p.submit(t, forebay.SubmitRequest{Task: "chat", Input: text("x"), Metadata: map[string]string{"note": "a\u202eb"}})
	bad := p.submit(t, forebay.SubmitRequest{Task: "chat", Input: text(modelsim.Marked("refuse", evil))})
	p.ended(t, good.ID)
	p.ended(t, bad.ID)
	for _, args := range [][]string{
		{"jobs", "get", good.ID}, {"jobs", "get", bad.ID}, {"jobs", "list"}, {"jobs", "attempts", bad.ID}, {"jobs", "watch", bad.ID},
		{"jobs", "result", good.ID}, {"dlq", "list"}, {"dlq", "peek", bad.ID},
		{"jobs", "get", good.ID, "-o", "json"}, {"jobs", "get", bad.ID, "-o", "json"}, {"jobs", "list", "-o", "jsonl"}, {"dlq", "peek", bad.ID, "-o", "json"},
	} {
		said, err := onTerminal(t, command(t.Context(), target.Dir, append(args, "--url", target.URL, "--key", target.Keys.Attacker)...))
		if err != nil || said == "" {
			t.Errorf("forebay %s: %v, %q", strings.Join(args[:2], " "), err, said)
			continue
		}
		if at := strings.IndexFunc(said, controls); at >= 0 {
			t.Errorf("forebay %s sends the terminal %q", strings.Join(args, " "), said[max(0, at-20):min(len(said), at+20)])
		}
		// What shows the title has to show what stood around it.
		if args[len(args)-1] == "json" && (!json.Valid([]byte(said)) ||
			strings.Contains(said, "title") && (!strings.Contains(said, `\u001b`) || !strings.Contains(said, `\u202e`))) {
			t.Errorf("forebay %s prints no JSON with escapes: %.300q", strings.Join(args, " "), said)
		}
	}
}

// controls reports characters that a terminal takes for more than text. The terminal itself turns
// line ends into CR and LF.
func controls(r rune) bool {
	return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// onTerminal runs a command with a pseudo terminal as its output and returns what came to it.
func onTerminal(t *testing.T, c *exec.Cmd) (string, error) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	number, err := unlockTerminal(master)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = terminal, terminal
	err = c.Start()
	terminal.Close()
	if err != nil {
		return "", err
	}
	said, _ := io.ReadAll(master) // ends with EIO once the command has closed its side
	err = c.Wait()
	if code := c.ProcessState.ExitCode(); code > 0 && len(said) > 0 {
		err = nil // such as that of a job that failed
	}
	return strings.ReplaceAll(string(said), "\r\n", "\n"), err
}

// A key that only submits cannot delete documents.
func TestScopeOfDeletes(t *testing.T) {
	reportTest(t)
	target := Start(t, TargetOptions{})
	var key forebay.APIKey
	target.admin().must(t, "POST", "/v1/keys", map[string]any{"tenant": attackerTenant, "scopes": []string{"submit"}}, &key)
	got := target.attacker().send(t.Context(), "POST", "/v1/documents?id=kept", "text/plain", []byte("kept"))
	if got.Status != http.StatusAccepted {
		t.Fatal(got)
	}
	if got := target.as(key.Key).call(t.Context(), "DELETE", "/v1/documents/kept", nil); got.Status != http.StatusForbidden {
		t.Errorf("a key with the scope submit deletes a document: %s", got)
	}
	if got := target.attacker().call(t.Context(), "GET", "/v1/documents/kept", nil); got.Status != http.StatusOK {
		t.Errorf("the document is gone: %s", got)
	}
}

// A webhook reports the same for an internal name that exists, one that does not and one that
// refuses.
func TestWebhookErrors(t *testing.T) {
	reportTest(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	refused, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	target := Start(t, TargetOptions{})
	p := target.attacker()
	seen := map[string][]string{}
	for i, where := range []string{"localhost", host, "localhost:" + refused[strings.LastIndexByte(refused, ':')+1:], "no-such-host.invalid"} {
		name := fmt.Sprintf("w%d", i)
		got := p.call(t.Context(), "POST", "/v1/webhooks", map[string]any{"name": name, "url": "https://" + where + "/hook"})
		what := fmt.Sprint(got.Status, between(string(got.Body), `"code":"`, `"`), between(string(got.Body), `"detail":"`, `"`))
		if got.Status == http.StatusCreated {
			tried := p.call(t.Context(), "POST", "/v1/webhooks/"+name+"/test", nil)
			what = fmt.Sprint(tried.Status, between(string(tried.Body), `"failure":"`, `"`), between(string(tried.Body), `"detail":"`, `"`))
		}
		what = strings.NewReplacer(where, "HOST", name, "NAME").Replace(what)
		seen[what] = append(seen[what], where)
	}
	if len(seen) != 1 {
		t.Errorf("a tenant can tell names of the operator's network apart: %q", seen)
	}
}

// A named pipe in a source of documents holds up nobody.
func TestPipeInSource(t *testing.T) {
	reportTest(t)
	target := Start(t, TargetOptions{Sources: true})
	if err := syscall.Mkfifo(filepath.Join(target.Sources(), "pipe.txt"), 0o644); err != nil {
		t.Fatal(err)
	}
	const limit = 10 * time.Second
	answers := make(chan Answer, 8)
	for range cap(answers) {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			answers <- target.attacker().call(ctx, "POST", "/v1/documents", map[string]any{"id": unique("d"), "url": "file://" + target.Sources() + "/pipe.txt"})
		}()
	}
	for range cap(answers) {
		if got := <-answers; got.Err != nil || got.Status < 400 {
			t.Errorf("a document that is a named pipe is not refused within %s: %s", limit, got)
		}
	}
	target.victim().ended(t, target.victim().submit(t, forebay.SubmitRequest{Task: "chat", Input: text("x")}).ID)
}

// A server that others can reach says that it has no keys, or no TLS, or does not start.
func TestListensToOthers(t *testing.T) {
	for name, c := range map[string]struct {
		keys bool
		want []string
	}{
		"without keys": {false, []string{"key"}},
		"without TLS":  {true, []string{"tls", "encrypt", "plain"}},
	} {
		t.Run(name, func(t *testing.T) {
			reportTest(t)
			dir := t.TempDir()
			if c.keys {
				if out, err := command(t.Context(), dir, "keys", "create").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			said := &tail{}
			server := command(t.Context(), dir, "serve", "--listen", "0.0.0.0:0", "--database", "sqlite:forebay.db")
			server.Stderr = said
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			gone := make(chan struct{})
			go func() { defer close(gone); _ = server.Wait() }() // the exit code is in ProcessState
			warned := func() bool {
				for line := range strings.Lines(strings.ToLower(said.String())) {
					if strings.Contains(line, `"level":"info"`) || strings.Contains(line, "simulated") {
						continue
					}
					for _, word := range c.want {
						if strings.Contains(line, word) {
							return true
						}
					}
				}
				return false
			}
			within(t.Context(), patience, func() bool {
				select {
				case <-gone:
					return true
				default:
					return strings.Contains(said.String(), "forebay is running")
				}
			})
			ok := within(t.Context(), 2*time.Second, warned)
			_ = server.Process.Kill()
			<-gone
			if !ok {
				t.Errorf("it starts and warns of nothing: %s", said)
			}
		})
	}
}

// A command for a server's keys that names a server makes no database beside it.
func TestKeysOfAServer(t *testing.T) {
	reportTest(t)
	target := Start(t, TargetOptions{})
	for _, args := range [][]string{{"create", "--tenant", "other"}, {"list"}, {"revoke", "key_00000000000000000000000000"}} {
		dir := t.TempDir()
		out, err := command(t.Context(), dir, append([]string{"keys", "--url", target.URL, "--key", target.Keys.Admin}, args...)...).CombinedOutput()
		left, readErr := os.ReadDir(dir)
		if readErr != nil || len(left) > 0 {
			t.Errorf("forebay keys --url … %s wrote %v: %v, %s", args[0], left, err, out)
		}
	}
}
