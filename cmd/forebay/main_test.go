package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/raced"
)

var update = flag.Bool("update", false, "write the golden files")

var testNow = time.Date(2030, 1, 2, 15, 4, 5, 0, time.UTC)

// ran is what one command line did.
type ran struct {
	code     int
	out, err string
}

type commandLine struct {
	url     string
	in      string
	environ []string
}

func (c commandLine) run(ctx context.Context, args ...string) ran {
	var out, err bytes.Buffer
	a := &command.App{In: strings.NewReader(c.in), Out: &out, Err: &err, Environ: c.environ, Now: func() time.Time { return testNow }, Zone: time.UTC}
	if c.url != "" {
		a.Environ = append(a.Environ, "FOREBAY_URL="+c.url)
	}
	code := a.Run(ctx, root(a), args)
	return ran{code, out.String(), err.String()}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it); got:\n%s", file, got)
	}
}

func TestHelp(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	var all strings.Builder
	visit(root(&command.App{}), func(c *cobra.Command) {
		if c.Name() == "help" {
			return
		}
		path := strings.Fields(c.CommandPath())[1:]
		got := commandLine{}.run(t.Context(), append([]string{"help"}, path...)...)
		if got.code != command.ExitOK || got.err != "" {
			t.Errorf("help %s: exit code %d, %q", path, got.code, got.err)
		}
		all.WriteString("$ forebay help " + strings.Join(path, " ") + "\n" + got.out + "\n")
	})
	golden(t, "help", all.String())
	for _, line := range strings.Split(all.String(), "\n") {
		if len([]rune(line)) > 100 {
			t.Errorf("a line of help is %d characters wide: %s", len([]rune(line)), line)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	dir := t.TempDir()
	binary := filepath.Join(dir, "binary")
	if err := os.WriteFile(binary, []byte{0xff, 0xfe}, 0o600); err != nil {
		t.Fatal(err)
	}
	// The address is one where nothing may be asked for.
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s", r.URL) }))
	defer server.Close()
	for _, c := range []struct {
		args string
		want string
	}{
		{"serv", `unknown command "serv"; did you mean "forebay serve"?`},
		{"jbs", `unknown command "jbs"; did you mean "forebay jobs"?`},
		{"jobs lst", `unknown command "lst"; did you mean "forebay jobs list"?`},
		{"jobs xyzzy", `unknown command "xyzzy"; see forebay jobs --help`},
		{"jobs get", "JOB_ID is missing; see forebay jobs show --help"},
		{"jobs get a b", `unexpected argument "b"`},
		{"jobs list --bogus", "unknown flag: --bogus; see forebay jobs list --help"},
		{"jobs list --limt 5", "unknown flag: --limt; did you mean --limit?"},
		{"jobs gett j", `unknown command "gett"; did you mean "forebay jobs get"?`},
		{"messages redrive", "QUEUE is missing; see forebay messages redrive --help"},
		{"messages redrive mail 1 --all", "sequence numbers, --reason and --all exclude each other"},
		{"messages delete mail --all --before 1d", "give one of --before, --all"},
		{"messages delete mail --all --max 0", "--max must be at least 1"},
		{"messages receive mail --max 0", "--max goes from 1 to 100"},
		{"messages set-state mail t --state x --clear", "give one of --state, --file, --clear"},
		{"webhooks redeliver billing 1 --all", "sequence numbers and --all exclude each other"},
		{"orchestrations purge --all --prefix=", "exclude each other"},
		{"documents list --limit -1", "--limit must not be negative"},
		{"queues create q --ttl -5s", `--ttl takes a duration such as 90s or 24h, not "-5s"`},
		{"workflows list --url http://127.0.0.1:1", "--url is for commands that talk to a server"},
		{"keys --url http://127.0.0.1:1", "--url is for commands that talk to a server; forebay keys does not"},
		{"jobs list --limit many", `--limit takes a whole number, not "many"`},
		{"deployments changes east --limit -1", "--limit must not be negative"},
		{"deployments pause", "DEPLOYMENT is missing; see forebay deployments pause --help"},
		{"tenants set-budget acme", "say what the budget is, such as --daily-usd 50, or --none"},
		{"tenants set-budget acme --none --daily-usd 5", "--none goes with no limit"},
		{"tenants set-budget acme --daily-usd fifty", `--daily-usd takes a number, not "fifty"`},
		{"tenants set-budget acme --daily-usd -5", "--daily-usd goes from 0"},
		{"tenants set-budget acme --daily-tokens -1", "--daily-tokens goes from 0 to"},
		{"tenants set-budget acme 50", `unexpected argument "50"`},
		{"keys set-budget key_1", "say what the budget is, such as --daily-usd 50, or --none"},
		{"tenants set-concurrency acme", "NUMBER is missing"},
		{"tenants set-limits", "TENANT is missing"},
		{"tenants set-limits acme", "say which limits to set, such as --waiting-jobs 50000, or --default"},
		{"tenants set-limits acme --default --topics 5", "--default goes with no limit"},
		{"tenants set-limits acme --waiting-jobs many", `--waiting-jobs takes a whole number, not "many"`},
		{"tenants set-limits acme --waiting-jobs -1", "--waiting-jobs goes from 0, which is no limit, to"},
		{"tenants set-concurrency acme many", `NUMBER goes from 0, which is no limit, to 1000000; "many" does not`},
		{"tenants set-concurrency acme -1", `unexpected "-1": no negative number is taken here`},
		{"jobs list --limit -1", "--limit must not be negative"},
		{"jobs list --status done", `--status takes no "done" here; there are scheduled`},
		{"jobs list -o yaml", "--output must be table, json or jsonl"},
		{"jobs list --url localhost", "the server's address must be like http://127.0.0.1:8080"},
		{"submit chat", "the input is missing"},
		{"submit chat --input a --file b", "give the input once"},
		{"submit chat - --file b", "give the input once"},
		{"submit chat +", `unexpected argument "+"`},
		{"submit chat --file " + filepath.Join(dir, "none"), "no such file"},
		{"submit chat --file " + binary, "not valid UTF-8"},
		{"submit chat --json --input {", "input: is not valid JSON"},
		{"submit chat --input a --metadata b", "--metadata must be key=value"},
		{"submit chat --input a --deadline soon", "--deadline must be a duration"},
		{"submit chat --input a --deadline -5m", "--deadline must be a duration"},
		{"dlq redrive", "name jobs, select them by flags, or say --all"},
		{"dlq redrive job_1 --all", "--all and a selection exclude each other"},
		{"dlq purge --all --reason x", "--all and a selection exclude each other"},
		{"report retries --since=", "--since must be a duration"},
		{"batch run x -o json", "for a file of this name say ./json"},
		{"help nowhere", `unknown command "nowhere"; see forebay --help`},
		{"help jobs lst", `did you mean "forebay jobs list"?`},
		{"help jobs get x", `unexpected argument "x"`},
		{"dlq redrive --task t --set-task u", "only exactly one job can be changed"},
		{"quarantine purge", "name jobs, select them by flags, or say --all"},
		{"report retries --since yesterday", "--since must be a duration"},
		{"batch run x", "--output is required"},
		{"batch run " + filepath.Join(dir, "none") + " -o " + filepath.Join(dir, "out"), "no such file"},
		{"orchestrations start", "ORCHESTRATOR is missing"},
		{"orchestrations start order --input {", "that is not valid JSON; say --text"},
		{"orchestrations start order --input 1 --file x", "give the input once"},
		{"orchestrations start order --text", "--text says that there is a text"},
		{"orchestrations raise order-1", "EVENT is missing"},
		{"orchestrations list --status done", `--status takes no "done" here; there are Pending, Running`},
		{"orchestrations purge", "name an instance, select some by flags, or say --all"},
		{"orchestrations purge order-1 --all", "exclude each other"},
		{"orchestrations purge --all --prefix x", "exclude each other"},
		{"orchestrations purge --status running", `--status takes no "running" here; there are Completed`},
		{"orchestrations get ..", "must not be"},
		{"keys create --expires never", "--expires must be a duration"},
		{"keys create --url http://127.0.0.1:1", "--url is for commands that talk to a server; forebay keys create does not"},
		{"--key fb_x migrate status", "--key is for commands that talk to a server; forebay migrate status does not"},
		{"keys create", "FOREBAY_URL names a server, but keys are made in its database"},
	} {
		got := commandLine{url: server.URL}.run(t.Context(), strings.Fields(c.args)...)
		if got.code != command.ExitUsage || got.out != "" || !strings.HasPrefix(got.err, "forebay: ") ||
			!strings.Contains(got.err, c.want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("forebay %s: exit code %d, output %q, error %q; want 2 and one line with %q", c.args, got.code, got.out, got.err, c.want)
		}
	}
}

func TestExitCodesOfAnswers(t *testing.T) {
	for code, want := range map[forebay.Code]int{
		forebay.CodeInvalidRequest: 2, forebay.CodeInvalidJSON: 2, forebay.CodeUnknownField: 2, forebay.CodeUnknownTask: 2,
		forebay.CodeUnknownQueue: 2, forebay.CodeInvalidCursor: 2, forebay.CodePayloadTooLarge: 2, forebay.CodeUnsupportedMedia: 2,
		forebay.CodeNotSupported: 2, forebay.CodeMethodNotAllowed: 2,
		forebay.CodeNotFound: 3, forebay.CodeUnauthorized: 4, forebay.CodeForbidden: 4,
		forebay.CodeConflict: 5, forebay.CodeIdempotencyMismatch: 5, forebay.CodeLockLost: 5,
		forebay.CodeTooManyRequests: 6, forebay.CodeRequestTimeout: 6, forebay.CodeTenantLimit: 6, forebay.CodeRateLimited: 6, forebay.CodeUnavailable: 6, forebay.CodeInternal: 6,
		forebay.CodeStorageFull: 7, forebay.CodeDatabaseUnusable: 7,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusTeapot)
			json.NewEncoder(w).Encode(map[string]any{"code": code, "detail": "two\nlines \x1b[31m"})
		}))
		got := commandLine{url: server.URL}.run(t.Context(), "jobs", "get", "job_1")
		if got.code != want || got.out != "" || got.err != "forebay: two; lines \uFFFD[31m\n" {
			t.Errorf("%s: exit code %d, output %q, error %q; want %d", code, got.code, got.out, got.err, want)
		}
		server.Close()
	}
}

// What was not found is named.
func TestNamesWhatIsNotFound(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		json.NewEncoder(w).Encode(map[string]any{"code": forebay.CodeNotFound, "detail": forebay.ErrNotFound.Message})
	}))
	defer server.Close()
	for _, args := range []string{"jobs get nope", "tenants show nope", "tenants pause nope", "deployments show nope", "deployments changes nope"} {
		got := commandLine{url: server.URL}.run(t.Context(), strings.Fields(args)...)
		if got.code != command.ExitNotFound || got.err != "forebay: \"nope\": not found\n" {
			t.Errorf("%s: exit code %d, error %q", args, got.code, got.err)
		}
	}
}

func TestQueueThatDoesNotExist(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		json.NewEncoder(w).Encode(map[string]any{"code": forebay.CodeUnknownQueue, "detail": "queue: there is none", "field": "queue"})
	}))
	defer server.Close()
	for _, args := range []string{"queues get q", "queues pause q", "dlq list --queue q", "quarantine peek job_1 --queue q"} {
		if got := (commandLine{url: server.URL}).run(t.Context(), strings.Fields(args)...); got.code != command.ExitNotFound {
			t.Errorf("%s: exit code %d, want 3", args, got.code)
		}
	}
}

func TestUnreachableAndInterrupted(t *testing.T) {
	const nobody = "http://127.0.0.1:1"
	got := commandLine{url: nobody}.run(t.Context(), "jobs", "list")
	if got.code != command.ExitUnavailable || !strings.HasPrefix(got.err, "forebay: cannot reach the server at "+nobody) {
		t.Errorf("exit code %d, error %q", got.code, got.err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := (commandLine{url: nobody}).run(ctx, "jobs", "list"); got.code != command.ExitInterrupted || got.err != "forebay: interrupted\n" {
		t.Errorf("exit code %d, error %q", got.code, got.err)
	}
}

func TestInterruptedWhileReadingStandardInput(t *testing.T) {
	in, writer := io.Pipe() // nobody writes
	defer writer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	a := &command.App{In: in, Out: io.Discard, Err: &stderr, Now: time.Now, Zone: time.UTC}
	if code := a.Run(ctx, root(a), []string{"submit", "chat", "-"}); code != command.ExitInterrupted || stderr.String() != "forebay: interrupted\n" {
		t.Errorf("exit code %d, error %q", code, stderr.String())
	}
}

func TestLostServerNamesTheJob(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			json.NewEncoder(w).Encode(forebay.Job{ID: "job_1", Status: forebay.StatusQueued})
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		json.NewEncoder(w).Encode(map[string]any{"code": forebay.CodeForbidden, "detail": "no"})
	}))
	defer server.Close()
	got := commandLine{url: server.URL}.run(t.Context(), "submit", "chat", "--input", "x", "--wait")
	if got.code != command.ExitUnauthorized || got.err != "forebay: no; the job is on disk: forebay jobs show job_1\n" {
		t.Errorf("%+v", got)
	}
}

func TestNamedJobThatIsNotSetAside(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{}`)) }))
	defer server.Close()
	for _, verb := range []string{"redrive", "purge"} {
		got := commandLine{url: server.URL}.run(t.Context(), "dlq", verb, "job_1")
		if got.code != command.ExitNotFound || got.out != "" || !strings.Contains(got.err, "job_1 is not a dead-letter job of queue default") {
			t.Errorf("%s: %+v", verb, got)
		}
	}
}

func TestRedriveTakesAJSONFileAsJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fixed.json")
	if err := os.WriteFile(file, []byte(`{"text":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var req forebay.RedriveRequest
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		json.NewDecoder(r.Body).Decode(&req)
		w.Write([]byte(`{"matched":1,"redriven":1}`))
	}))
	defer server.Close()
	got := commandLine{url: server.URL}.run(t.Context(), "dlq", "redrive", "job_1", "--set-input-file", file)
	if got.code != command.ExitOK || req.Edit == nil || string(req.Edit.Input) != `{"text":"x"}` {
		t.Errorf("%+v sent %+v", got, req.Edit)
	}
}

func TestKeysOfNoDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.db")
	for _, args := range []string{"keys list", "keys revoke key_1"} {
		got := commandLine{}.run(t.Context(), append(strings.Fields(args), "--database", "sqlite:"+file)...)
		if _, err := os.Stat(file); got.code != command.ExitStorage || !os.IsNotExist(err) {
			t.Errorf("%s: %+v, file: %v", args, got, err)
		}
	}
	got := commandLine{}.run(t.Context(), "keys", "create", "--database", "sqlite:"+file)
	if got.code != command.ExitOK || !strings.Contains(got.err, "Made a new database, "+file) {
		t.Errorf("create: %+v", got)
	}
}

func TestKeyComesFromFlagOrEnvironment(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		w.Write([]byte(`{"items":[]}`))
	}))
	defer server.Close()
	c := commandLine{url: server.URL, environ: []string{"FOREBAY_API_KEY=fb_env"}}
	if c.run(t.Context(), "queues", "list"); got != "Bearer fb_env" {
		t.Errorf("sent %q", got)
	}
	if c.run(t.Context(), "queues", "list", "--key", "fb_flag"); got != "Bearer fb_flag" {
		t.Errorf("sent %q", got)
	}
}

func TestConfigurationCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("deployments: [{name: a, provider: openai, model: m, api_key: sk-secret}]\n")
	if got := (commandLine{}).run(t.Context(), "config", "validate", "--config", file); got.code != command.ExitOK || got.out != "the configuration is valid\n" {
		t.Errorf("validate: %+v", got)
	}
	got := commandLine{}.run(t.Context(), "config", "print", "--config", file, "--listen", ":1")
	if got.code != command.ExitOK || !strings.Contains(got.out, "api_key: '***'") || !strings.Contains(got.out, "lock_duration: 1m0s") || !strings.Contains(got.out, "listen: :1") {
		t.Errorf("print: %+v", got)
	}
	write("lisen: x\nlimits: 3\n")
	for _, args := range []string{"config validate", "config print", "serve", "worker", "keys list"} {
		got := commandLine{}.run(t.Context(), append(strings.Fields(args), "--config", file)...)
		want := "forebay: limits: must be a section of keys and values, not a whole number\nforebay: lisen: unknown key \"lisen\"; did you mean listen?\n"
		if got.code != command.ExitConfiguration || got.err != want {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if got := (commandLine{}).run(t.Context(), "doctor", "--config", file); got.code != command.ExitConfiguration || !strings.Contains(got.out, "lisen") {
		t.Errorf("doctor: %+v", got)
	}
}

func TestServeErrors(t *testing.T) {
	dir := t.TempDir()
	database := "sqlite:" + filepath.Join(dir, "forebay.db")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	got := commandLine{}.run(t.Context(), "serve", "--database", database, "--listen", taken.Addr().String())
	if got.code != command.ExitUnavailable || !strings.Contains(got.err, "address already in use") || !strings.Contains(got.err, "\nforebay: ") && !strings.HasPrefix(got.err, "forebay: ") {
		t.Errorf("taken port: %+v", got)
	}
	notOurs := filepath.Join(dir, "notours.db")
	if err := os.WriteFile(notOurs, bytes.Repeat([]byte("not a database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	got = commandLine{}.run(t.Context(), "serve", "--database", "sqlite:"+notOurs, "--listen", "127.0.0.1:0")
	if got.code != command.ExitStorage || strings.Contains(got.err, dir) {
		t.Errorf("not a database: %+v", got)
	}
	got = commandLine{}.run(t.Context(), "serve", "--database", "postgres://me:hunter2@127.0.0.1:1/x", "--listen", "127.0.0.1:0")
	if got.code != command.ExitStorage || strings.Contains(got.err, "hunter2") {
		t.Errorf("no PostgreSQL there: %+v", got)
	}
	got = commandLine{}.run(t.Context(), "serve", "--database", "postgres:x", "--listen", "127.0.0.1:0")
	if got.code != command.ExitConfiguration {
		t.Errorf("no URL: %+v", got)
	}
}
