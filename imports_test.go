package forebay_test

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/forebayhq/forebay"

// mayImport says which of our packages each of our packages may import. "." is the root package,
// "internal/..." is everything below internal, and "..." is everything. A row whose name ends in
// "/*" is for each package below a folder. docs/architecture.md explains the arrows.
//
// The packages that have SQL import each other in this order only: db and what is below it, audit,
// queue, bus, report and files, admission, keys and tenant, backlog, jobs, orchestrate,
// documents and batches, retention. Webhook imports bus. Stores imports all but retention.
var mayImport = map[string][]string{
	".":                                {},
	"client":                           {".", "internal/sleep"},
	"cmd/forebay":                      {"..."},
	"docs":                             {"internal/pgtest", "internal/toolchain"},
	"examples/*":                       {".", "client", "server"},
	"hostile":                          {},
	"internal/admission":               {".", "internal/audit", "internal/bus", "internal/bus/entity", "internal/db", "internal/db/driver", "internal/feed", "internal/queue", "internal/quota"},
	"internal/amqp":                    {"internal/amqp/wire"},
	"internal/amqp/wire":               {},
	"internal/api":                     {".", "internal/api/conditions", "internal/api/connections", "internal/api/decode", "internal/api/inprocess", "internal/api/transfer", "internal/audit", "internal/deltas", "internal/documents", "internal/feed", "internal/jobs", "internal/jsoncheck", "internal/keys", "internal/limits", "internal/memory", "internal/messaging", "internal/orchestrate", "internal/panics", "internal/report", "internal/retention", "internal/tasks", "internal/tenant", "internal/turns", "internal/webhook"},
	"internal/api/conditions":          {"."},
	"internal/api/connections":         {"."},
	"internal/api/decode":              {".", "internal/jsoncheck"},
	"internal/api/inprocess":           {},
	"internal/api/transfer":            {".", "internal/memory", "internal/panics"},
	"internal/audit":                   {".", "internal/db", "internal/db/driver", "internal/listing"},
	"internal/azurebus":                {".", "internal/messaging", "internal/panics", "internal/retry", "internal/sleep", "internal/trigger"},
	"internal/backlog":                 {".", "internal/admission", "internal/db/driver", "internal/fairqueue", "internal/flows", "internal/queue", "internal/quota"},
	"internal/backup":                  {".", "internal/blob", "internal/db", "internal/db/schema"},
	"internal/batches":                 {".", "internal/blob", "internal/db", "internal/db/driver", "internal/feed", "internal/files", "internal/flows", "internal/ids", "internal/jobs", "internal/jsoncheck", "internal/limits", "internal/panics", "internal/queue"},
	"internal/blob":                    {"."},
	"internal/blob/clouds":             {},
	"internal/bus":                     {".", "internal/audit", "internal/bus/clockmend", "internal/bus/dead", "internal/bus/entity", "internal/bus/message", "internal/bus/rules", "internal/db", "internal/db/driver", "internal/db/schema", "internal/floors", "internal/queue", "internal/turns"},
	"internal/bus/clockmend":           {"internal/db", "internal/db/driver"},
	"internal/bus/dead":                {".", "internal/db/driver", "internal/queue"},
	"internal/bus/entity":              {".", "internal/audit", "internal/bus/message", "internal/bus/rules", "internal/db/driver", "internal/db/schema", "internal/queue"},
	"internal/bus/leftovers":           {"internal/db", "internal/db/driver"},
	"internal/bus/message":             {".", "internal/filter"},
	"internal/bus/rules":               {".", "internal/bus/message", "internal/filter", "internal/turns"},
	"internal/command":                 {".", "client"},
	"internal/command/live":            {".", "client", "internal/command"},
	"internal/command/openai":          {".", "client", "internal/command"},
	"internal/command/reports":         {".", "internal/command"},
	"internal/command/servicebus":      {".", "client", "internal/command", "internal/servicebus/atom"},
	"internal/config":                  {".", "server"},
	"internal/dashboard":               {".", "internal/api", "internal/dashboard/...", "internal/signin"},
	"internal/dashboard/fetch":         {},
	"internal/dashboard/kit":           {".", "client", "internal/api", "internal/shell"},
	"internal/dashboard/screens/*":     {".", "client", "internal/dashboard/kit"},
	"internal/dashboardtest":           {".", "client", "internal/browsertest", "internal/db/dbtest", "internal/raced", "internal/servertest", "internal/sleep", "internal/toolchain", "server"},
	"internal/browsertest":             {"internal/raced", "internal/sleep", "internal/toolchain"},
	"internal/db":                      {".", "internal/db/driver", "internal/db/postgres", "internal/db/schema", "internal/db/sqlite", "internal/panics", "internal/sleep", "internal/turns"},
	"internal/db/dbtest":               {"internal/db", "internal/db/driver", "internal/db/postgres", "internal/db/schema", "internal/db/sqlite", "internal/pgtest", "internal/raced"},
	"internal/db/driver":               {"."},
	"internal/db/postgres":             {".", "internal/db/driver", "internal/db/schema", "internal/sleep"},
	"internal/db/schema":               {"."},
	"internal/db/schema/schematest":    {"internal/db/postgres", "internal/db/schema"},
	"internal/db/sqlite":               {".", "internal/db/driver", "internal/db/schema"},
	"internal/deltas":                  {"."},
	"internal/dispatch":                {".", "internal/deltas", "internal/jobs", "internal/memory", "internal/panics", "internal/retry", "internal/sleep", "internal/turns"},
	"internal/documents":               {".", "internal/audit", "internal/blob", "internal/bus", "internal/db", "internal/db/driver", "internal/db/postgres", "internal/extract", "internal/ids", "internal/jobs", "internal/jobs/record", "internal/jobs/request", "internal/limits", "internal/listing", "internal/memory", "internal/model", "internal/panics", "internal/queue", "internal/turns", "internal/vector"},
	"internal/doctor":                  {".", "internal/blob", "internal/command", "internal/config", "server"},
	"internal/extract":                 {"."},
	"internal/fairqueue":               {},
	"internal/feed":                    {".", "internal/db", "internal/db/driver"},
	"internal/files":                   {".", "internal/blob", "internal/db", "internal/db/driver", "internal/ids", "internal/limits", "internal/memory", "internal/panics", "internal/queue", "internal/sleep"},
	"internal/filter":                  {".", "internal/panics"},
	"internal/filter/filtertest":       {"."},
	"internal/floors":                  {},
	"internal/flows":                   {".", "internal/fairqueue"},
	"internal/gather":                  {},
	"internal/ids":                     {},
	"internal/jobs":                    {".", "internal/admission", "internal/audit", "internal/backlog", "internal/bus", "internal/bus/entity", "internal/db", "internal/db/driver", "internal/db/postgres", "internal/fairqueue", "internal/feed", "internal/flows", "internal/ids", "internal/jobs/clockmend", "internal/jobs/events", "internal/jobs/history", "internal/jobs/record", "internal/jobs/request", "internal/jsoncheck", "internal/limits", "internal/listing", "internal/payload", "internal/queue", "internal/quota", "internal/report", "internal/retry"},
	"internal/jobs/clockmend":          {"internal/admission", "internal/db"},
	"internal/jobs/events":             {".", "internal/audit", "internal/bus", "internal/db", "internal/db/driver", "internal/feed", "internal/jobs/request", "internal/queue"},
	"internal/jobs/history":            {".", "internal/db/driver"},
	"internal/jobs/record":             {".", "internal/db", "internal/db/driver", "internal/gather", "internal/jobs/request", "internal/listing", "internal/queue", "internal/turns"},
	"internal/jobs/request":            {".", "internal/bus/entity", "internal/jsoncheck", "internal/turns"},
	"internal/jsoncheck":               {"."},
	"internal/keys":                    {".", "internal/admission", "internal/audit", "internal/db", "internal/db/driver", "internal/ids", "internal/limits", "internal/queue"},
	"internal/limits":                  {"."},
	"internal/listing":                 {".", "internal/db/driver"},
	"internal/live":                    {".", "internal/db/driver", "internal/feed", "internal/jobs", "internal/jobs/record", "internal/listing", "internal/processes", "internal/queue"},
	"internal/memory":                  {"."},
	"internal/messaging":               {".", "internal/bus", "internal/bus/dead", "internal/bus/entity", "internal/bus/message", "internal/bus/rules", "internal/limits", "internal/memory", "internal/queue", "internal/turns"},
	"internal/model":                   {".", "internal/jsoncheck", "internal/quota", "internal/turns"},
	"internal/modelsim":                {".", "internal/jsoncheck", "internal/model", "internal/sleep"},
	"internal/openai":                  {".", "internal/api", "internal/api/transfer", "internal/batches", "internal/files", "internal/ids", "internal/jsoncheck", "internal/memory", "internal/model", "internal/responses", "internal/responses/bridge", "internal/turns"},
	"internal/orchestrate":             {".", "internal/audit", "internal/blob", "internal/db", "internal/db/driver", "internal/feed", "internal/floors", "internal/jobs", "internal/jsoncheck", "internal/limits", "internal/memory", "internal/orchestrate/clockmend", "internal/orchestrate/history", "internal/orchestrate/inbox", "internal/orchestrate/places", "internal/orchestrate/policy", "internal/orchestrate/statements", "internal/orchestrate/workqueues", "internal/panics", "internal/queue", "internal/sleep", "internal/turns"},
	"internal/orchestrate/clockmend":   {"internal/db"},
	"internal/orchestrate/durabletask": {".", "internal/limits", "internal/memory", "internal/orchestrate", "internal/orchestrate/history", "internal/panics", "internal/sleep", "internal/turns"},
	"internal/orchestrate/history":     {"."},
	"internal/orchestrate/inbox":       {},
	"internal/orchestrate/places":      {},
	"internal/orchestrate/policy":      {"."},
	"internal/orchestrate/statements":  {"internal/db/driver"},
	"internal/orchestrate/workqueues":  {"internal/orchestrate/inbox"},
	"internal/mutetest":                {},
	"internal/panics":                  {},
	"internal/payload":                 {".", "internal/blob", "internal/ids", "internal/memory"},
	"internal/pgtest":                  {"internal/toolchain"},
	"internal/processes":               {".", "internal/db", "internal/db/driver", "internal/flows", "internal/ids", "internal/listing", "internal/sleep"},
	"internal/queue":                   {".", "internal/audit", "internal/db", "internal/db/driver", "internal/db/schema"},
	"internal/quota":                   {"."},
	"internal/raced":                   {},
	"internal/report":                  {".", "internal/db", "internal/db/driver", "internal/queue"},
	"internal/responses":               {".", "internal/bus", "internal/db", "internal/db/driver", "internal/files", "internal/ids", "internal/jobs", "internal/jobs/events", "internal/limits", "internal/memory", "internal/model", "internal/panics", "internal/payload", "internal/queue", "internal/responses/bridge", "internal/seal"},
	"internal/responses/bridge":        {"."},
	"internal/retention":               {".", "internal/audit", "internal/blob", "internal/db", "internal/db/driver", "internal/db/schema", "internal/jobs", "internal/listing", "internal/sleep"},
	"internal/retry":                   {"."},
	"internal/servertest":              {".", "client", "internal/db/dbtest", "internal/modelsim", "internal/sleep", "server"},
	"internal/shell":                   {},
	"internal/sleep":                   {},
	"internal/seal":                    {},
	"internal/servicebus/atom":         {".", "internal/bus", "internal/bus/entity", "internal/limits", "internal/messaging", "internal/servicebus/auth"},
	"internal/servicebus/auth":         {".", "internal/keys", "internal/limits", "internal/signin/oidc"},
	"internal/servicebus/content":      {".", "internal/amqp/wire", "internal/bus", "internal/bus/message", "internal/queue"},
	"internal/servicebus":              {".", "internal/amqp", "internal/amqp/wire", "internal/api/connections", "internal/bus", "internal/bus/entity", "internal/bus/message", "internal/limits", "internal/memory", "internal/messaging", "internal/panics", "internal/servicebus/auth", "internal/servicebus/content", "internal/servicebus/transactions", "internal/sleep", "internal/turns"},
	"internal/servicebus/transactions": {".", "internal/bus", "internal/memory", "internal/messaging"},
	"internal/signin":                  {".", "internal/audit", "internal/db", "internal/db/driver", "internal/queue"},
	"internal/signin/oidc":             {".", "internal/audit", "internal/seal", "internal/signin"},
	"internal/stores":                  {".", "internal/admission", "internal/audit", "internal/backlog", "internal/batches", "internal/blob", "internal/bus", "internal/db", "internal/documents", "internal/files", "internal/jobs", "internal/jobs/events", "internal/keys", "internal/orchestrate", "internal/payload", "internal/queue", "internal/report", "internal/responses", "internal/signin", "internal/tenant", "internal/webhook"},
	"internal/tasks":                   {".", "internal/jsoncheck", "internal/model", "internal/turns"},
	"internal/telemetry":               {".", "internal/azurebus", "internal/backlog", "internal/db", "internal/jobs", "internal/jobs/events", "internal/model", "internal/orchestrate", "internal/orchestrate/workqueues", "internal/panics", "internal/webhook"},
	"internal/tenant":                  {".", "internal/admission", "internal/audit", "internal/db", "internal/db/driver", "internal/limits", "internal/queue"},
	"internal/toolchain":               {},
	"internal/toolchain/ensure":        {"internal/pgtest", "internal/toolchain"},
	"internal/trigger":                 {".", "internal/jsoncheck", "internal/messaging", "internal/panics", "internal/sleep"},
	"internal/turns":                   {},
	"internal/vector":                  {"internal/panics"},
	"internal/webhook":                 {".", "internal/audit", "internal/bus", "internal/bus/entity", "internal/db", "internal/db/driver", "internal/limits", "internal/panics", "internal/queue", "internal/sleep"},
	"internal/workflow":                {"."},
	"server":                           {".", "internal/..."},
	"server/admission":                 {},
	"server/crash":                     {},
	"server/crash/kills":               {},
	"server/dashboard":                 {},
	"server/dashboard/screens":         {},
	"server/dashboard/signin":          {},
	"server/interop":                   {},
	"server/interop/servicebus":        {},
	"server/openai":                    {},
}

// inOutStandard are the parts of the standard library that do input or output. The root package
// must do without them.
var inOutStandard = []string{
	"bufio", "crypto/tls", "database", "embed", "io/fs", "io/ioutil", "log", "net", "os", "path/filepath", "plugin", "syscall", "testing",
}

// pureExceptions are below inOutStandard and do nothing themselves. A Secret needs log/slog to
// stay out of logs.
var pureExceptions = []string{"log/slog", "net/netip", "net/url"}

func TestImports(t *testing.T) {
	packages := parseModule(t)
	used := map[string]bool{}
	for _, p := range packages {
		row, ok := rowOf(p.dir)
		if !ok {
			t.Errorf("package %s has no row in mayImport (imports_test.go): add one that says which of our packages it may import", p.dir)
			continue
		}
		used[row] = true
		for _, imp := range p.imports {
			target, ours := strings.CutPrefix(imp.path, module+"/")
			if imp.path == module {
				target, ours = ".", true
			}
			switch {
			case !ours || target == p.dir:
			case imp.inTest && (target == "cmd" || strings.HasPrefix(target, "cmd/")):
				t.Errorf("%s: a test imports %s: run the command as a process, or move what is tested out of cmd", imp.file, target)
			case !imp.inTest && !allowed(mayImport[row], target):
				t.Errorf("%s: %s imports %s, which its row in mayImport (imports_test.go) does not allow: turn the dependency round, or change the row and say why", imp.file, p.dir, target)
			}
		}
	}
	for row := range mayImport {
		if !used[row] {
			t.Errorf("mayImport (imports_test.go) has a row for %s, where there is no package: remove the row", row)
		}
	}
}

// benchShares are the packages of the module bench that its other packages share, each with those
// that it may import. Packages of benchmarks import these and not each other.
var benchShares = map[string][]string{
	"bench/measure":  {},
	"bench/embedded": {"bench/measure"},
	"bench/serving":  {"bench/measure"},
}

func TestImportsOfBenchmarks(t *testing.T) {
	for _, p := range parsePackages(t, "bench") {
		for _, imp := range p.imports {
			target, ours := strings.CutPrefix(imp.path, module+"/")
			if !ours || !strings.HasPrefix(target, "bench/") || p.dir == "bench" {
				continue
			}
			rules, shared := benchShares[p.dir]
			if _, ok := benchShares[target]; !ok || shared && !slices.Contains(rules, target) {
				t.Errorf("%s: %s imports %s: what benchmarks share is in the packages of benchShares (imports_test.go)", imp.file, p.dir, target)
			}
		}
	}
}

// TestPackagesAreDescribed sees to it that a newcomer finds each package in a list.
func TestPackagesAreDescribed(t *testing.T) {
	lists := map[string]string{}
	for _, file := range []string{"internal/README.md", "docs/architecture.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lists[file] = string(text)
	}
	isListed := func(file, name string) bool { return strings.Contains(lists[file], "\n| `"+name+"` | ") }
	for _, p := range parseModule(t) {
		file, name := "docs/architecture.md", p.dir
		if below, ok := strings.CutPrefix(p.dir, "internal/"); ok {
			file, name = "internal/README.md", below
		}
		for family := name; !isListed(file, name) && !isListed(file, family+"/*"); family = path.Dir(family) {
			if family == "." {
				t.Errorf("%s has no line for %s: say there what it is", file, name)
				break
			}
		}
	}
}

func TestRootPackageIsPure(t *testing.T) {
	for _, p := range parseModule(t) {
		for _, imp := range p.imports {
			if p.dir != "." || imp.inTest {
				continue
			}
			if first, _, _ := strings.Cut(imp.path, "/"); strings.Contains(first, ".") {
				t.Errorf("%s: the root package imports %s; it may import only the standard library", imp.file, imp.path)
			}
			if slices.Contains(pureExceptions, imp.path) {
				continue
			}
			for _, impure := range inOutStandard {
				if imp.path == impure || strings.HasPrefix(imp.path, impure+"/") {
					t.Errorf("%s: the root package imports %s; it does no input or output", imp.file, imp.path)
				}
			}
		}
	}
}

func TestImportRules(t *testing.T) {
	for _, c := range []struct {
		rules  []string
		target string
		want   bool
	}{
		{nil, ".", false},
		{[]string{"."}, ".", true},
		{[]string{"."}, "server", false},
		{[]string{"internal/..."}, "internal/a/b", true},
		{[]string{"internal/..."}, "internals", false},
		{[]string{"..."}, "server", true},
	} {
		if got := allowed(c.rules, c.target); got != c.want {
			t.Errorf("allowed(%q, %q) = %t", c.rules, c.target, got)
		}
	}
	for dir, want := range map[string]string{".": ".", "examples/embed": "examples/*", "internal/toolchain/ensure": "internal/toolchain/ensure", "internal/util": ""} {
		if row, _ := rowOf(dir); row != want {
			t.Errorf("%s has the row %q, want %q", dir, row, want)
		}
	}
}

// rowOf returns the row for the package in a folder: its own, else that of "/*" over it.
func rowOf(dir string) (string, bool) {
	if _, ok := mayImport[dir]; ok {
		return dir, true
	}
	for up := path.Dir(dir); up != "."; up = path.Dir(up) {
		if _, ok := mayImport[up+"/*"]; ok {
			return up + "/*", true
		}
	}
	return "", false
}

func allowed(rules []string, target string) bool {
	return slices.ContainsFunc(rules, func(rule string) bool {
		below, wild := strings.CutSuffix(rule, "...")
		return rule == target || (wild && strings.HasPrefix(target, below))
	})
}

type parsedPackage struct {
	dir     string // slash-separated, relative to the root
	imports []parsedImport
}

type parsedImport struct {
	file, path string
	inTest     bool
}

// parseModule reads the imports of every Go file of the module, whatever its build constraints.
func parseModule(t *testing.T) []parsedPackage {
	t.Helper()
	return parsePackages(t, ".")
}

// parsePackages reads those of a module in a folder.
func parsePackages(t *testing.T, root string) []parsedPackage {
	t.Helper()
	byDir := map[string]*parsedPackage{}
	var dirs []string
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if name == root {
				return nil
			}
			return skipFolder(name)
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, inTest := path.Dir(name), strings.HasSuffix(name, "_test.go")
		if byDir[dir] == nil {
			byDir[dir] = &parsedPackage{dir: dir}
			dirs = append(dirs, dir)
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			byDir[dir].imports = append(byDir[dir].imports, parsedImport{name, imported, inTest})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	packages := make([]parsedPackage, len(dirs))
	for i, dir := range dirs {
		packages[i] = *byDir[dir]
	}
	return packages
}

// skipFolder leaves out what the go command leaves out as well: other modules, testdata, and names
// that begin with a dot or underscore.
func skipFolder(name string) error {
	if name == "." {
		return nil
	}
	base := path.Base(name)
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	_, err := os.Stat(name + "/go.mod")
	switch {
	case err == nil:
		return fs.SkipDir
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}
