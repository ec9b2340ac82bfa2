package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/server"
)

func writeFile(t testing.TB, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "forebay.yaml")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// fill gives every option a value of its own that is not zero.
func fill(t *testing.T, v reflect.Value, n *int) {
	*n++
	if v.Type() == durationType {
		v.SetInt(int64(time.Duration(*n) * 1500 * time.Millisecond))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("value: %d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(1<<63 + uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.25)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), n)
		fill(t, v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, name := range []string{"first", "sec.ond"} {
			item := reflect.New(v.Type().Elem()).Elem()
			fill(t, item, n)
			v.SetMapIndex(reflect.ValueOf(name), item)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			tag := v.Type().Field(i).Tag.Get("koanf")
			if tag == "" {
				t.Errorf("%s.%s has no koanf tag: it cannot be configured", v.Type(), v.Type().Field(i).Name)
			}
			if tag != "-" {
				fill(t, v.Field(i), n)
			}
		}
	default:
		t.Errorf("the loader does not know options of kind %s", v.Kind())
	}
}

func TestEveryOptionCanBeSet(t *testing.T) {
	var want server.Options
	n := 0
	fill(t, reflect.ValueOf(&want).Elem(), &n)
	if n < 100 {
		t.Fatalf("filled %d values; are there so few options?", n)
	}
	data, err := write(want, forebay.Secret.Reveal)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := parseYAML(data)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, data)
	}
	var got server.Options
	var d decoder
	d.decode(&got, tree)
	if len(d.problems) > 0 {
		t.Fatalf("%q in:\n%s", d.problems, data)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read back %+v\nwant %+v", got, want)
	}
}

func TestNothingIsNeeded(t *testing.T) {
	got, err := Load(Source{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (server.Options{}).WithDefaults(); !reflect.DeepEqual(got.Options, want) {
		t.Errorf("got %+v, want the defaults", got.Options)
	}
	if len(got.Notes) > 0 {
		t.Errorf("notes: %q", got.Notes)
	}
}

func TestOrder(t *testing.T) {
	file := writeFile(t, `
database: sqlite:file.db
listen: 127.0.0.1:1
limits: {max_input_bytes: 1000, max_output_bytes: 2000}
queues:
  default: {concurrency: 3, lock_duration: 10s}
  slow:
models: {chat: [a]}
deployments: [{name: a, provider: sim}, {name: b, provider: sim}]
`)
	got, err := Load(Source{File: file, Listen: "127.0.0.1:3", Environ: []string{
		"FOREBAY_LISTEN=127.0.0.1:2", "FOREBAY_DATABASE=sqlite:env.db", "FOREBAY_LIMITS__MAX_INPUT_BYTES=1500",
		"FOREBAY_QUEUES__DEFAULT__LOCK_DURATION=20s", "FOREBAY_MODELS__CHAT=b, a", "FOREBAY_MODELS__OTHER=[a]",
		"FOREBAY_URL=http://other", "FOREBAY_API_KEY=fb_x", "FOREBAY_CA_CERT=ca.pem", "FOREBAY_PORT=tcp://10.0.0.1:8080", "FOREBAY_PORT_8080_TCP_ADDR=10.0.0.1",
		"FOREBAY_SERVICE_HOST=10.0.0.1", "UNRELATED=1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	o := got.Options
	if o.Listen != "127.0.0.1:3" || o.Database != "sqlite:env.db" {
		t.Errorf("listen %s, database %s: a flag wins over the environment, and that over the file", o.Listen, o.Database)
	}
	if o.Limits.MaxInputBytes != 1500 || o.Limits.MaxOutputBytes != 2000 {
		t.Errorf("limits are %+v: a variable inside a section must leave the rest of it", o.Limits)
	}
	if q := o.Queues["default"]; q.Concurrency != 3 || q.LockDuration != 20*time.Second {
		t.Errorf("queue default is %+v", q)
	}
	if q := o.Queues["slow"]; q.Concurrency == 0 {
		t.Error("a queue without options has no defaults")
	}
	if want := map[string]server.Model{"chat": server.InOrder("b", "a"), "other": server.InOrder("a")}; !reflect.DeepEqual(o.Models, want) {
		t.Errorf("models are %v, want %v", o.Models, want)
	}
}

func TestErrorsNameTheKey(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		environ    []string
		want       string
	}{
		{name: "unknown key", yaml: "lisen: x", want: `lisen: unknown key "lisen"; did you mean listen?`},
		{name: "one slash too few", yaml: "blob: s3:/bucket", want: "blob: is no URL: s3: is followed by two slashes"},
		{name: "blob storage of no kind", yaml: "blob: https://bucket", want: `blob: has the scheme "https"; known are file, s3, azblob and mem`},
		{name: "no such port", yaml: "listen: 127.0.0.1:99999", want: `listen: "127.0.0.1:99999" is not host:port`},
		{name: "gRPC without a host", yaml: "orchestrations: {grpc: {address: '4001'}}", want: `orchestrations.grpc.address: "4001" is not host:port`},
		{name: "unknown, nothing near", yaml: "colour: x", want: `colour: unknown key "colour"`},
		{name: "unknown, few there are", yaml: "metrics: {address: x}", want: `metrics.address: unknown key "address"; there is listen`},
		{name: "nested unknown", yaml: "queues: {default: {retry: {atempts: 3}}}", want: `queues.default.retry.atempts: unknown key "atempts"; did you mean attempts?`},
		{name: "unknown in list", yaml: "deployments: [{name: a, provider: sim, tpm: 3}]", want: `deployments[0].tpm: unknown key`},
		{name: "duplicate key", yaml: "listen: a\nlisten: b", want: `mapping key "listen" already defined`},
		{name: "wrong type", yaml: "limits: {max_input_bytes: lots}", want: "limits.max_input_bytes: must be a whole number, not text"},
		{name: "fraction", yaml: "queues: {default: {concurrency: 1.5}}", want: "queues.default.concurrency: must be a whole number, not a number"},
		{name: "duration without unit", yaml: "shutdown_timeout: 30", want: "shutdown_timeout: must be a duration with a unit"},
		{name: "no time to stop", yaml: "shutdown_timeout: 0", want: "shutdown_timeout: must not be 0; leave it out for the default of 30s"},
		{name: "no time to stop, with a unit", environ: []string{"FOREBAY_SHUTDOWN_TIMEOUT=0s"}, want: "FOREBAY_SHUTDOWN_TIMEOUT: must not be 0"},
		{name: "no places", yaml: "queues: {a.b: {concurrency: 0}}", want: "queues.a.b.concurrency: must not be 0; leave it out for the default of 64"},
		{name: "no share", yaml: "models: {chat: {route: weighted, deployments: [{name: a, weight: 0}]}}\ndeployments: [{name: a, provider: sim}]", want: "models.chat.deployments[0].weight: must not be 0; leave it out for the default of 1"},
		{name: "no lock", yaml: "topics: {o: {subscriptions: {s: {lock_duration: 0s}}}}", want: "topics.o.subscriptions.s.lock_duration: must not be 0; leave it out for the default of 1m"},
		{name: "no attempt", yaml: "orchestrations: {activities: {a: {retry: {attempts: 0, first: 0s, max: 0}}}}", want: "orchestrations.activities.a.retry.max: must not be 0; leave it out for the default of 1m"},
		{name: "no attempt of a task", yaml: "tasks: {chat: {max_attempts: 0}}", want: "tasks.chat.max_attempts: must not be 0; leave it out for the default of the queue"},
		{name: "no connection", yaml: "limits: {connections: 0}", want: "limits.connections: must not be 0; leave it out for the default of at most 8192"},
		{name: "no factor", yaml: "queues: {default: {retry: {coefficient: 0.0}}}", want: "queues.default.retry.coefficient: must not be 0"},
		{name: "section expected", yaml: "limits: 3", want: "limits: must be a section of keys and values, not a whole number"},
		{name: "list expected", yaml: "models: {chat: a}", want: "models.chat: must be a list, not text"},
		{name: "text expected", yaml: "deployments: [{name: a, provider: sim, api_key: 1234567}]", want: "deployments[0].api_key: must be text, not a whole number; put it in quotes"},
		{name: "not a number", yaml: "queues: {default: {retry: {rate: .nan}}}", want: "queues.default.retry.rate: must be a number"},
		{name: "not a mapping", yaml: "- a", want: "is not a mapping"},
		{name: "two documents", yaml: "listen: 127.0.0.1:1\n---\nlisten: 127.0.0.1:2", want: "more than one YAML document"},
		{name: "broken", yaml: "a: [", want: "forebay.yaml: line "},
		{name: "indented by a tab", yaml: "queues:\n\tdefault: {}", want: "line 2: found character that cannot start any token; a line begins with a tab, and YAML is indented by spaces"},
		{name: "unknown variable", environ: []string{"FOREBAY_LIMITS__MAX_INPUTS=3"}, want: `FOREBAY_LIMITS__MAX_INPUTS: unknown key "max_inputs"`},
		{name: "wrong variable", environ: []string{"FOREBAY_LIMITS__MEMORY_BYTES=much"}, want: "FOREBAY_LIMITS__MEMORY_BYTES: must be a whole number, not text"},
		{name: "broken variable", environ: []string{"FOREBAY_LIMITS=["}, want: "FOREBAY_LIMITS: is not valid YAML"},
		{name: "part of a scalar", yaml: "limits: 3", environ: []string{"FOREBAY_LIMITS__MEMORY_BYTES=1"}, want: "FOREBAY_LIMITS__MEMORY_BYTES: sets a part of limits, which is not a section"},
		{name: "lock too short", yaml: "queues: {default: {lock_duration: 500ms}}", want: "queues.default.lock_duration: goes from 1s to 5m"},
		{name: "lock too long", yaml: "queues: {default: {lock_duration: 6m}}", want: "queues.default.lock_duration: goes from 1s to 5m"},
		{name: "unknown deployment", yaml: "models: {chat: [nowhere]}\ndeployments: [{name: a, provider: sim}]", want: `models.chat.deployments[0]: there is no deployment "nowhere"`},
		{name: "name twice", yaml: "deployments: [{name: a, provider: sim}, {name: a, provider: sim}]", want: `deployments[1].name: "a" is used twice`},
		{name: "unknown provider", yaml: "deployments: [{name: a, provider: bard}]", want: "deployments[0].provider"},
		{name: "no type of event", yaml: "audit: {job_events: [failed, won]}", want: `audit.job_events[1]: "won" is none of accepted, started,`},
		{name: "no event of a job", environ: []string{"FOREBAY_AUDIT__JOB_EVENTS=budget_warning"}, want: `audit.job_events[0]: "budget_warning" is none of accepted,`},
		{name: "type twice", yaml: "audit: {job_events: [failed, expired, failed]}", want: "audit.job_events[2]: names failed twice"},
		{name: "invalid name", yaml: "queues: {'a b': {}}", want: `queues: "a b" is not a valid name`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(Source{File: writeFile(t, c.yaml), Environ: c.environ})
			failure, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("error is %v, want an *Error", err)
			}
			if !slices.ContainsFunc(failure.Problems, func(p string) bool { return strings.Contains(p, c.want) }) {
				t.Errorf("problems are %q, want one with %q", failure.Problems, c.want)
			}
			for _, p := range failure.Problems {
				if strings.ContainsAny(p, "\n\r") || strings.Contains(p, os.TempDir()) || strings.Contains(p, "1234567") {
					t.Errorf("problem %q is more than a line, or shows a path or a value", p)
				}
			}
		})
	}
}

// What the audit log is to have of jobs is said, or left out, or nothing; and printed as that.
func TestAuditedEvents(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	for yaml, want := range map[string]string{
		"{}": "audit:\n  job_events:\n    - dead_lettered\n    - quarantined\n", "audit: {}": "audit:\n  job_events:\n    - dead_lettered\n    - quarantined\n",
		"audit: {job_events: []}": "audit:\n  job_events: []\n", "audit: {job_events: [accepted, expired]}": "audit:\n  job_events:\n    - accepted\n    - expired\n",
	} {
		got, err := Load(Source{File: writeFile(t, yaml)})
		if err != nil {
			t.Fatal(err)
		}
		printed, err := Print(got.Options)
		if err != nil || !strings.Contains(string(printed), want) {
			t.Errorf("%s is %q and printed as %s (%v)", yaml, got.Options.Audit, printed, err)
		}
		again, err := Load(Source{File: writeFile(t, string(printed))})
		if err != nil || !reflect.DeepEqual(again.Options.Audit, got.Options.Audit) {
			t.Errorf("%s is read back as %q (%v)", yaml, again.Options.Audit, err)
		}
	}
}

func TestAllProblemsAreReported(t *testing.T) {
	_, err := Load(Source{File: writeFile(t, "lisen: x\nlimits: 3\nqueues: {default: {concurrency: no}}")})
	failure, ok := errors.AsType[*Error](err)
	if !ok || len(failure.Problems) != 3 {
		t.Errorf("got %v, want three problems", err)
	}
	_, err = Load(Source{File: writeFile(t, "listen: nowhere\nlog: {level: loud}")})
	if failure, ok = errors.AsType[*Error](err); !ok || len(failure.Problems) != 2 {
		t.Errorf("got %v, want two problems", err)
	}
}

func TestFileLimits(t *testing.T) {
	for name, file := range map[string]string{
		"is larger than":         writeFile(t, "# "+strings.Repeat("x", maxFileBytes)),
		"no such file":           filepath.Join(t.TempDir(), "none.yaml"),
		"excessive aliasing":     writeFile(t, aliasBomb()),
		"cannot be read: is a d": t.TempDir(),
	} {
		_, err := Load(Source{File: file})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error is %v, want %q", err, name)
		}
	}
}

func aliasBomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return b.String()
}

func TestSecretFiles(t *testing.T) {
	secret := writeFile(t, "sk-secret\r\n")
	file := writeFile(t, fmt.Sprintf(`
deployments: [{name: a, provider: openai, model: m, api_key_file: %q}]
tasks: {score: {http: {url: "http://127.0.0.1:1/", headers: {Authorization_file: %q}}}}
ui:
  public_url: https://forebay.example.com
  oidc: {issuer: "https://id.example.com", client_id: a, client_secret_file: %q, roles: {Forebay.Operator: {scopes: [admin]}}}
`, secret, secret, secret))
	got, err := Load(Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if key := got.Options.Deployments[0].APIKey.Reveal(); key != "sk-secret" {
		t.Errorf("api_key is %q", key)
	}
	if header := got.Options.Tasks["score"].HTTP.Headers["Authorization"].Reveal(); header != "sk-secret" {
		t.Errorf("header is %q", header)
	}
	if oidc := got.Options.UI.OIDC; oidc.ClientSecret.Reveal() != "sk-secret" || len(oidc.Roles["Forebay.Operator"].Scopes) != 1 {
		t.Errorf("ui.oidc is %+v", oidc)
	}
	for want, yaml := range map[string]string{
		"given together with api_key":                         fmt.Sprintf("deployments: [{name: a, provider: openai, api_key: k, api_key_file: %q}]", secret),
		"api_key_file: the file cannot be read: no such file": "deployments: [{name: a, provider: openai, api_key_file: /nowhere/at/all}]",
		"unknown key \"name_file\"":                           "deployments: [{name_file: x, provider: sim}]",
	} {
		if _, err := Load(Source{File: writeFile(t, yaml)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

func TestPrintMasksSecrets(t *testing.T) {
	o := server.Options{
		Deployments: []server.Deployment{{Name: "a", Provider: "openai", APIKey: "sk-secret", IdleTimeout: time.Minute}},
		Tasks:       map[string]server.TaskOption{"score": {HTTP: &server.HTTPTask{URL: "http://x", Headers: map[string]forebay.Secret{"X-Key": "hidden"}}}},
	}
	got, err := Print(o)
	if err != nil {
		t.Fatal(err)
	}
	const want = `deployments:
  - name: a
    provider: openai
    api_key: '***'
    idle_timeout: 1m0s
tasks:
  score:
    http:
      url: http://x
      headers:
        X-Key: '***'
`
	if string(got) != want {
		t.Errorf("printed:\n%s\nwant:\n%s", got, want)
	}
}

// Only the secret parts of addresses are masked, and nothing of other texts.
func TestPrintMasksSecretsInAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:p@ss:w0rd@db:5432/x?sslmode=require&password=p2": "postgres://u:***@db:5432/x?sslmode=require&password=***",
		"postgres://u@db/x?pool=3":                                     "postgres://u@db/x?pool=3",
		"postgres:///x?host=/run&sslpassword=p":                        "postgres:///x?host=/run&sslpassword=***",
		"https://f.example.com/api/score?code=c%2Fd==&v=1":             "https://f.example.com/api/score?code=***&v=1",
		"s3://bucket?region=eu-west-1&prefix=a/":                       "s3://bucket?region=eu-west-1&prefix=a/",
		"sqlite:forebay.db":                                            "sqlite:forebay.db",
		"Is https://u:p@h/?key=k an address? Say why: a@b.c.":          "Is https://u:p@h/?key=k an address? Say why: a@b.c.",
	} {
		got, err := Print(server.Options{Database: address})
		if err != nil {
			t.Fatal(err)
		}
		if printed, err := parseYAML(got); err != nil || printed["database"] != want {
			t.Errorf("printed %q, %v; want %q", got, err, want)
		}
		kept, err := write(server.Options{Database: address}, forebay.Secret.Reveal)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := parseYAML(kept); err != nil || same["database"] != address {
			t.Errorf("kept %q, %v; want %q", kept, err, address)
		}
	}
}

// An empty variable, as of a template, is none. One that names an entry of the file changes that
// entry, although its own letters are upper case.
func TestVariablesOverEntriesOfTheFile(t *testing.T) {
	got, err := Load(Source{
		File: writeFile(t, "database: postgres://db/x\nlimits: {max_input_bytes: 5000}\ntenants: {Acme: {weight: 2}, b: {weight: 3}}\n"),
		Environ: []string{"FOREBAY_DATABASE=", "FOREBAY_LIMITS__MAX_INPUT_BYTES=", "FOREBAY_TENANTS__ACME__CONCURRENCY=5",
			"FOREBAY_TENANTS__C__CONCURRENCY=6"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if o := got.Options; o.Database != "postgres://db/x" || o.Limits.MaxInputBytes != 5000 {
		t.Errorf("database %q, max_input_bytes %d", o.Database, o.Limits.MaxInputBytes)
	}
	want := map[string]server.Tenant{"Acme": {Weight: 2, Concurrency: 5}, "b": {Weight: 3}, "c": {Concurrency: 6}}
	if !reflect.DeepEqual(got.Options.Tenants, want) {
		t.Errorf("tenants %+v, want %+v", got.Options.Tenants, want)
	}
	_, err = Load(Source{File: writeFile(t, "tenants: {Acme: {weight: 2}}"), Environ: []string{"FOREBAY_TENANTS__ACME__CONCURRENCY=many"}})
	if err == nil || !strings.Contains(err.Error(), "FOREBAY_TENANTS__ACME__CONCURRENCY") {
		t.Errorf("error %v does not name the variable", err)
	}
}

func TestPickUp(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		file    string
		models  map[string]server.Model
		notes   int
	}{
		{"openai", []string{"OPENAI_API_KEY=k", "OPENAI_BASE_URL=http://127.0.0.1:9/v1"}, "", map[string]server.Model{"chat": server.InOrder("openai-chat"), "embedding": server.InOrder("openai-embedding")}, 1},
		{"azure", []string{"AZURE_OPENAI_ENDPOINT=https://x.openai.azure.com", "AZURE_OPENAI_API_KEY=k", "AZURE_OPENAI_DEPLOYMENT=d"}, "", map[string]server.Model{"chat": server.InOrder("azure-chat")}, 2},
		{"azure without deployment", []string{"AZURE_OPENAI_ENDPOINT=https://x"}, "", map[string]server.Model{"chat": server.InOrder("simulated"), "embedding": server.InOrder("simulated")}, 1},
		{"several", []string{"OPENAI_API_KEY=k", "ANTHROPIC_API_KEY=k"}, "", map[string]server.Model{"chat": server.InOrder("openai-chat", "anthropic-chat"), "embedding": server.InOrder("openai-embedding")}, 2},
		{"configured", []string{"OPENAI_API_KEY=k"}, "deployments: [{name: a, provider: sim}]", map[string]server.Model{"chat": server.InOrder("a"), "embedding": server.InOrder("a")}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Load(Source{File: writeFile(t, c.file), Environ: c.environ})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Options.Models, c.models) || len(got.Notes) != c.notes {
				t.Errorf("models are %v with notes %q, want %v with %d", got.Options.Models, got.Notes, c.models, c.notes)
			}
			for _, d := range got.Options.Deployments {
				if d.Provider != server.ProviderSim && d.APIKey.Reveal() != "k" {
					t.Errorf("deployment %s has not got the key", d.Name)
				}
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	for _, seed := range []string{"", "listen: 127.0.0.1:1", "queues: {default: {lock_duration: 5s}}", "a: &a {b: *a}", "? [a]\n: b", "1: 2\n\"1\": 3", "limits: {max_input_bytes: 99999999999999999999}",
		"tasks: {x: {http: {headers: {A: b}}}}", "deployments: [null, {}]", "!!binary aGk=: x", "<<: {listen: x}"} {
		f.Add(seed, "FOREBAY_LIMITS__MEMORY_BYTES="+seed)
	}
	f.Fuzz(func(t *testing.T, content, variable string) {
		if strings.Contains(content, "_file") || strings.Contains(strings.ToLower(variable), "_file") {
			t.Skip("would read files of this machine")
		}
		loaded, err := Load(Source{File: writeFile(t, content), Environ: []string{variable}})
		if err != nil {
			failure, ok := errors.AsType[*Error](err)
			if !ok || len(failure.Problems) == 0 {
				t.Fatalf("error %v is not an *Error", err)
			}
			return
		}
		if err := loaded.Options.Validate(); err != nil {
			t.Fatalf("loaded options are not valid: %v", err)
		}
		printed, err := write(loaded.Options, forebay.Secret.Reveal)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Load(Source{File: writeFile(t, string(printed))})
		if err != nil {
			t.Fatalf("%v in what was printed:\n%s", err, printed)
		}
		if !reflect.DeepEqual(again.Options, loaded.Options) {
			t.Fatalf("printed and read again:\n%+v\nfirst:\n%+v", again.Options, loaded.Options)
		}
	})
}

// The page of the configuration names the models that are asked for unless others are configured.
func TestDefaultModelsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{openAIChat, openAIEmbedding, anthropicChat} {
		if !strings.Contains(string(page), "`"+model+"`") {
			t.Errorf("docs/configuration.md does not name %s", model)
		}
	}
}
