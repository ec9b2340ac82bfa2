package kit

import (
	"os"
	"path/filepath"
	"testing"
)

// Templates are parsed when a page is first shown, so that a broken one does not end the program
// as it starts.
func TestTemplatesParse(t *testing.T) {
	folders, err := filepath.Glob("../screens/*/templates")
	if err != nil || len(folders) < 5 {
		t.Fatalf("only %d folders of screens (%v)", len(folders), err)
	}
	for _, folder := range append(folders, "../templates") {
		if pages := parse(os.DirFS(filepath.Dir(folder)), "templates"); len(pages) == 0 {
			t.Errorf("%s has no page", folder)
		}
	}
}
