// Package dashboardtest is what tests of the dashboard share that are in several packages: a
// server with one, a visitor without script, and how a page looks in a browser.
package dashboardtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// screenshots is the folder for pictures of all screens, of those that are seen in more than one
// look; "": none are taken.
var screenshots = os.Getenv("FOREBAY_SCREENSHOTS")

// AxeSource is the program of axe-core, which tests alone use. The package.json of that folder
// names its version.
func AxeSource(t *testing.T, folder string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(toolchain.NodeModules(t, folder), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// looks are the widths and themes in which each page is tried.
var looks = [...]Look{{1280, false}, {1280, true}, {390, false}, {390, true}}

// ofColours are the rules of axe-core that a theme can break.
var ofColours = []string{"color-contrast", "link-in-text-block"}

// ofWidth are those that the content of a narrow page can break where it pleased on a wide one.
// Content is the same; what is wider than its place is scrolled.
var ofWidth = []string{"scrollable-region-focusable"}

// Look is a width and a theme.
type Look struct {
	Width int64
	Dark  bool
}

// LooksOn returns the engine of a database, the looks in which pages are tried there, and
// axe-core. Engines differ in the data and not in what is drawn. So one look is enough on
// PostgreSQL, without axe-core.
func LooksOn(database, axe string) (engine string, in []Look, by string) {
	if strings.HasPrefix(database, "sqlite:") {
		return "sqlite", looks[:], axe
	}
	return "postgresql", looks[:1], ""
}

// Inspect opens a page in some looks, or in all if none is given, and waits until it shows a text.
// It fails for anything that the page complains of, for what axe-core finds, and if the page is
// wider than the screen. A theme alone needs no visit of its own. axe "" is none. Colours are the
// same at each width (TestNarrowPagesHaveTheSameColours), so they are tried at the first.
func Inspect(t *testing.T, p *browsertest.Page, axe, address, name, shows string, in ...Look) {
	t.Helper()
	if len(in) == 0 {
		in = looks[:]
	}
	p.Complaints()
	for i, look := range in {
		what := fmt.Sprintf("%s, %d px, dark %v", name, look.Width, look.Dark)
		p.Look(look.Width, look.Dark)
		if i == 0 || in[i-1].Width != look.Width {
			p.Go(address)
			p.Wait(`document.readyState === 'complete'`)
			p.WaitText(shows)
		}
		switch {
		case axe == "":
		case look.Dark && look.Width == looks[0].Width:
			p.Accessible(axe, what, ofColours...)
		case look.Dark: // the narrow page was tried when it was light
		case look.Width == looks[0].Width:
			p.Accessible(axe, what)
		default:
			p.Accessible(axe, what, ofWidth...)
		}
		for _, complaint := range p.Complaints() {
			t.Errorf("%s: %s", what, complaint)
		}
		var size struct{ Wide, Elements int }
		p.Evaluate(`({Wide: document.documentElement.scrollWidth - innerWidth, Elements: document.querySelectorAll('*').length})`, &size)
		if size.Wide > 0 {
			t.Errorf("%s: the page is %d px wider than the screen", what, size.Wide)
		}
		if size.Elements > maxElements {
			t.Errorf("%s: %d elements, %d are enough", what, size.Elements, maxElements)
		}
		if len(in) == 1 {
			continue // on PostgreSQL, where pages look as on SQLite
		}
		shade := "light"
		if look.Dark {
			shade = "dark"
		}
		p.Screenshot(screenshots, fmt.Sprintf("%s-%d-%s", strings.Trim(plain.ReplaceAllString(name, "-"), "-"), look.Width, shade))
	}
}

// Navigation returns where the navigation of a page leads, below the dashboard.
func Navigation(page *browsertest.Page) (paths []string) {
	page.Evaluate(`[...document.querySelectorAll('nav.side a')].map(a => a.getAttribute('href').replace('/ui', ''))`, &paths)
	return paths
}

// plain finds what names of files have a dash for.
var plain = regexp.MustCompile(`[^a-z0-9]+`)

// maxElements bounds a page, so that browsers stay quick.
const maxElements = 1500
