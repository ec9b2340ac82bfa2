package forebay_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// A ceiling is a limit on how large something may be, by its name. Exceptions broke the limit when
// it was introduced. They may shrink, not grow, and a row that is no longer needed must go.
type ceiling struct {
	of         string
	limit      int
	exceptions map[string]int
}

var (
	packageLines     = ceiling{"lines of product code in the package", 6000, map[string]int{}}
	fileLines        = ceiling{"lines in the file", 500, map[string]int{}}
	typeMethods      = ceiling{"methods of the type", 40, map[string]int{}}
	interfaceMethods = ceiling{"methods of the interface", 8, map[string]int{}}
	// Comments are wrapped package by package, so this one counts the long lines of a package.
	longComments = ceiling{"comment lines of 100 characters or more in the package", 0, map[string]int{}}
)

func (c ceiling) check(t *testing.T, found map[string]int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if limit := max(c.limit, c.exceptions[name]); found[name] > limit {
			t.Errorf("%s: %d %s, %d are allowed", name, found[name], c.of, limit)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.exceptions)) {
		if found[name] <= c.limit {
			t.Errorf("%s: %d %s, within the limit of %d: remove its exception (house_test.go)", name, found[name], c.of, c.limit)
		}
	}
}

func TestPackagesStaySmall(t *testing.T) {
	found := map[string]int{}
	for _, f := range allSources(t) {
		if f.product() {
			code := f.text[max(strings.Index("\n"+f.text, "\npackage "), 0):] // without the package comment
			found[f.dir()] += strings.Count(code, "\n")
		}
	}
	packageLines.check(t, found)
}

// TestArchitectureStaysShort keeps the page that a newcomer reads first short. What is deeper
// stands beside the code that it explains.
func TestArchitectureStaysShort(t *testing.T) {
	const limit = 4000
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	if words := len(strings.Fields(string(text))); words > limit {
		t.Errorf("docs/architecture.md: %d words, %d are allowed", words, limit)
	}
}

func TestFilesStaySmall(t *testing.T) {
	found := map[string]int{}
	for _, f := range allSources(t) {
		if !f.generated { // tests are read as well
			found[f.name] = strings.Count(f.text, "\n")
		}
	}
	fileLines.check(t, found)
}

func TestTypesStaySmall(t *testing.T) {
	found := map[string]int{}
	for _, f := range allSources(t) {
		if !f.product() {
			continue
		}
		for _, d := range f.Decls {
			if method, ok := d.(*ast.FuncDecl); ok && method.Recv != nil {
				found[f.dir()+"."+receiverName(method)]++
			}
		}
	}
	typeMethods.check(t, found)
}

func TestInterfacesStaySmall(t *testing.T) {
	found := map[string]int{}
	for _, f := range allSources(t) {
		if !f.product() {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if i, ok := spec.Type.(*ast.InterfaceType); ok {
					found[f.dir()+"."+spec.Name.Name] = methodCount(i)
				}
			}
			return true
		})
	}
	interfaceMethods.check(t, found)
}

// methodCount counts the methods that an interface declares itself. Interfaces that it embeds are
// counted by themselves: composing small ones is how a large one is to be built.
func methodCount(i *ast.InterfaceType) (n int) {
	for _, field := range i.Methods.List {
		n += len(field.Names)
	}
	return n
}

// domainWords are what the engine, internal/db and below, must not speak of. Tenants are not among
// them: the engine takes operations of tenants in rotation. Nor are words with another meaning
// there, such as message, queue and session.
var domainWords = regexp.MustCompile(`(?i)^(job|orchestrat(ion|or)|document|webhook|hook|subscription|subqueue|topic|budget|workflow|deployment|quota|prompt|schedule|embedding)s?$`)

func TestEngineNamesNoDomain(t *testing.T) {
	for _, f := range sources(t) {
		// The tables are declared in schema; dbtest serves the tests of domains.
		exempt := f.dir() == "internal/db/schema" || f.dir() == "internal/db/dbtest"
		if !f.product() || exempt || f.dir() != "internal/db" && !strings.HasPrefix(f.dir(), "internal/db/") {
			continue
		}
		check := func(n ast.Node, text string) {
			for _, word := range words.FindAllString(text, -1) {
				if domainWords.MatchString(word) {
					t.Errorf("%s: the engine names a domain, by %q in %q", f.fset.Position(n.Pos()), word, text)
				}
			}
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				check(n, n.Name)
			case *ast.BasicLit:
				check(n, n.Value)
			}
			return true
		})
		for _, group := range f.Comments {
			for _, c := range group.List {
				check(c, c.Text)
			}
		}
	}
}

// words splits text, also an identifier such as NextJobs or next_jobs.
var words = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

func TestDomainWords(t *testing.T) {
	for text, want := range map[string]bool{
		"nextJobs": true, "sql_jobs": true, "a job's end": true, "Webhook": true, "budget_id": true,
		"documented": false, "message": false, "objects": false, "tenant": false,
	} {
		if got := slices.ContainsFunc(words.FindAllString(text, -1), domainWords.MatchString); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func TestCommentsFit(t *testing.T) {
	found := map[string]int{}
	for _, f := range allSources(t) {
		if f.generated {
			continue
		}
		lines := strings.Split(f.text, "\n")
		for _, group := range f.Comments {
			for _, c := range group.List {
				from, to := f.fset.Position(c.Pos()), f.fset.Position(c.End())
				for line := from.Line; line <= to.Line; line++ {
					text := lines[line-1]
					// A comment behind code is not counted: the line is the code's.
					if before := text[:from.Column-1]; line > from.Line || strings.TrimSpace(before) == "" {
						if utf8.RuneCountInString(text) >= 100 {
							found[f.dir()]++
						}
					}
				}
			}
		}
	}
	longComments.check(t, found)
}

func receiverName(method *ast.FuncDecl) string {
	receiver := method.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
		case *ast.IndexExpr:
			receiver = r.X
		case *ast.IndexListExpr:
			receiver = r.X
		case *ast.Ident:
			return r.Name
		default:
			return fmt.Sprintf("%T", r)
		}
	}
}

type source struct {
	*ast.File
	name, text string // the name is slash-separated, relative to the root
	fset       *token.FileSet
	generated  bool
}

func (f source) dir() string { return path.Dir(f.name) }

func (f source) product() bool { return !f.generated && !strings.HasSuffix(f.name, "_test.go") }

// sources parses every Go file of the module, whatever its build constraints.
func sources(t *testing.T) []source {
	t.Helper()
	return parsed(t, ".")
}

// allSources parses those of bench as well, which is a module of its own.
func allSources(t *testing.T) []source {
	t.Helper()
	return append(slices.Clip(parsed(t, ".")), parsed(t, "bench")...)
}

func parsed(t *testing.T, module string) []source {
	t.Helper()
	files, err := parsedModules[module]()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var parsedModules = map[string]func() ([]source, error){
	".":     sync.OnceValues(func() ([]source, error) { return parse(".") }),
	"bench": sync.OnceValues(func() ([]source, error) { return parse("bench") }),
}

func parse(module string) (files []source, err error) {
	err = filepath.WalkDir(module, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if name == module {
				return nil
			}
			return skipFolder(name)
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, source{file, name, string(text), fset, ast.IsGenerated(file)})
		return nil
	})
	return files, err
}
