package schema

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var createTable = regexp.MustCompile(`^CREATE (?:VIRTUAL )?TABLE (\w+)`)

// uncommented returns the tables of a script that no comment stands above, and how many there are.
func uncommented(script string) (names []string, tables int) {
	above := ""
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		switch line {
		case "-- sqlite:", "-- postgresql:", "-- all:":
			continue // markers of a dialect may stand between a comment and its table
		}
		if table := createTable.FindStringSubmatch(line); table != nil {
			tables++
			if !strings.HasPrefix(above, "-- ") {
				names = append(names, table[1])
			}
		}
		above = line
	}
	return names, tables
}

func TestEveryTableHasAComment(t *testing.T) {
	script, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	names, tables := uncommented(string(script))
	if tables < 30 {
		t.Errorf("only %d tables were found", tables)
	}
	for _, name := range names {
		t.Errorf("table %s has no comment above it", name)
	}
}

func TestUncommented(t *testing.T) {
	names, tables := uncommented("-- About a.\n-- sqlite:\nCREATE TABLE a (\n-- all:\n);\n\nCREATE TABLE b (\n);\n")
	if tables != 2 || len(names) != 1 || names[0] != "b" {
		t.Errorf("%d tables, without a comment: %q", tables, names)
	}
}
