package dashboard_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// screenshots is the folder for pictures of all pages; "": none are taken.
var screenshots = os.Getenv("FOREBAY_SCREENSHOTS")

// axeSource is the program of axe-core, which tests alone use.
func axeSource(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(toolchain.NodeModules(t, filepath.Join("testdata", "axe")), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// looks are the widths and themes in which each page is tried.
var looks = [...]look{{1280, false}, {1280, true}, {390, false}, {390, true}}

type look struct {
	width int64
	dark  bool
}

// inspect opens a page in all looks. It fails for anything that the page complains of, for what
// axe-core finds, and if the page is wider than the screen.
func inspect(t *testing.T, p *browsertest.Page, axe, address, name string) {
	t.Helper()
	inspectIn(t, p, axe, address, name, looks[:]...)
}

// inspectIn is inspect for some looks.
func inspectIn(t *testing.T, p *browsertest.Page, axe, address, name string, in ...look) {
	t.Helper()
	for _, look := range in {
		what := fmt.Sprintf("%s, %d px, dark %v", name, look.width, look.dark)
		p.Look(look.width, look.dark)
		p.Complaints()
		p.Go(address)
		p.Wait(`document.readyState === 'complete'`)
		if look.dark == (look.width < 1000) { // contrast goes by the theme, the layout by the width
			p.Accessible(axe, what)
		}
		for _, complaint := range p.Complaints() {
			t.Errorf("%s: %s", what, complaint)
		}
		var wide, elements int
		p.Evaluate(`document.documentElement.scrollWidth - innerWidth`, &wide)
		p.Evaluate(`document.querySelectorAll('*').length`, &elements)
		if wide > 0 {
			t.Errorf("%s: the page is %d px wider than the screen", what, wide)
		}
		if elements > maxElements {
			t.Errorf("%s: %d elements, %d are enough", what, elements, maxElements)
		}
		shade := "light"
		if look.dark {
			shade = "dark"
		}
		p.Screenshot(screenshots, fmt.Sprintf("%s-%d-%s", strings.ReplaceAll(name, "/", "-"), look.width, shade))
	}
}

// maxElements bounds a page, so that browsers stay quick.
const maxElements = 1500
