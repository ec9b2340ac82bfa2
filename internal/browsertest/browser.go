// Package browsertest opens pages in a real Chromium, for tests. It notes what a page complains
// of: lines on its console, exceptions, refused loads, violations of its policy.
package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// patience is how long a page may take for what a test waits for.
const patience = time.Minute

// Browser is a Chromium. Its pages share nothing.
type Browser struct{ ctx context.Context }

// shared is the Chromium of the tests that run now.
var shared struct {
	mu    sync.Mutex
	tests int
	*Browser
	stop func()
}

// Start returns a Chromium, which it installs if it may and must. Tests that run at once share
// it, and it ends with the last of them.
func Start(t testing.TB) *Browser {
	t.Helper()
	raced.Skip(t, raced.Processes)
	toolchain.Need(t, toolchain.Chromium())
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.tests == 0 {
		var err error
		if shared.Browser, shared.stop, err = launch(); err != nil {
			t.Fatalf("Chromium does not start: %v", err)
		}
	}
	shared.tests++
	t.Cleanup(func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		if shared.tests--; shared.tests == 0 {
			shared.stop()
		}
	})
	return shared.Browser
}

// launch starts a Chromium. stop ends it and removes its files.
func launch() (b *Browser, stop func(), err error) {
	program, err := exec.LookPath(toolchain.HeadlessShell)
	if err != nil {
		program, err = exec.LookPath("chromium")
	}
	if err != nil {
		return nil, nil, err
	}
	folder, err := os.MkdirTemp("", "forebay-chromium-")
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.DisableGPU, chromedp.UserDataDir(folder),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-features", "Translate,OptimizationHints,MediaRouter"),
		// Each page runs axe-core for less than a second, anew. To optimize it takes longer than
		// that saves.
		chromedp.Flag("js-flags", "--no-opt --no-maglev"),
		chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the sandbox does not run as root
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, leave := chromedp.NewContext(allocator)
	stop = func() {
		leave()
		end()
		_ = os.RemoveAll(folder)
	}
	if err := chromedp.Do(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	return &Browser{ctx}, stop, nil
}

// Page is a tab with cookies of its own.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu         sync.Mutex
	complaints []string
	received   int64 // bytes over the network
}

// Open opens an empty page.
func (b *Browser) Open(t testing.TB) *Page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	p := &Page{t: t, ctx: ctx}
	p.do("open", chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, network.Enable, network.EnableParams{})
		if err == nil { // its keys work although another page was opened later
			_, err = cdp.Call(ctx, target, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		}
		return err
	}))
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	return p
}

// listen notes what the page complains of.
func (p *Page) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		var parts []string
		for _, arg := range e.Args {
			parts = append(parts, string(arg.Value)+arg.Description)
		}
		p.complain("console: " + strings.Join(parts, " "))
	case *runtime.EventExceptionThrown:
		p.complain("exception: " + e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		// Whoever is quicker than the page has focused something else already.
		if strings.HasPrefix(e.Entry.Text, "Autofocus processing was blocked") {
			return
		}
		p.complain(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
	case *network.EventLoadingFinished:
		p.mu.Lock()
		p.received += int64(e.EncodedDataLength)
		p.mu.Unlock()
	}
}

func (p *Page) complain(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complaints = append(p.complaints, what)
}

// Complaints returns what the page complained of, and forgets it.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.complaints
	p.complaints = nil
	return list
}

// Received returns how many bytes came over the network since the last time.
func (p *Page) Received() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.received
	p.received = 0
	return n
}

// do carries out steps, or fails the test.
func (p *Page) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- chromedp.Do(p.ctx, steps...) }()
	select {
	case err := <-done:
		if err != nil {
			p.t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(patience):
		p.t.Fatalf("%s: it takes longer than %s; the page says: %.2000s", what, patience, p.describe())
	}
}

// describe is the text of the page, for a test that fails.
func (p *Page) describe() string {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// Go opens an address.
func (p *Page) Go(address string) {
	p.t.Helper()
	p.do("open "+address, chromedp.Navigate(address))
}

// Click clicks the first element that a CSS selector finds, and waits for it first.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.do("click "+selector, chromedp.ScrollIntoView(chromedp.CSS(selector)), chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// Submit clicks an element and waits for the page that follows.
func (p *Page) Submit(selector string) {
	p.t.Helper()
	p.Wait("document.readyState === 'complete'")
	p.Evaluate(`window.left = true`, nil)
	p.Click(selector)
	p.Wait("!window.left && document.readyState === 'complete'")
}

// Type types into the element that a CSS selector finds. It replaces what is there.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	quoted, err := json.Marshal(selector)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Wait(`document.querySelector(` + string(quoted) + `)`)
	p.Evaluate(`(e => { e.focus(); e.select?.(); })(document.querySelector(`+string(quoted)+`))`, nil)
	p.do("type into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Press presses keys on the page, one after the other, once its scripts have run.
func (p *Page) Press(keys string) {
	p.t.Helper()
	p.Wait(`document.readyState === 'complete'`)
	p.do("press "+keys, chromedp.KeyEvent(keys))
}

// Evaluate runs JavaScript and decodes its value into out, if that is not nil.
func (p *Page) Evaluate(script string, out any) {
	p.t.Helper()
	var value json.RawMessage
	p.do("evaluate "+script[:min(len(script), 80)], func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		got, err := chromedp.Evaluate[json.RawMessage]("Promise.resolve("+script+").then(v => v === undefined ? null : v)", chromedp.EvalAwaitPromise)(ctx, target)
		value = got
		return chromedp.Void{}, err
	})
	if out == nil {
		return
	}
	if err := json.Unmarshal(value, out); err != nil {
		p.t.Fatalf("evaluate %.80s: %v: %s", script, err, value)
	}
}

// Wait waits until a JavaScript expression is true. It survives that the page changes meanwhile.
func (p *Page) Wait(expression string) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		cancel()
		if err == nil && ok {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s does not become true (%v); the page says: %.2000s", expression, err, p.describe())
		}
		if err := sleep.For(p.ctx, 20*time.Millisecond); err != nil {
			p.t.Fatalf("%s: %v", expression, err)
		}
	}
}

// WaitText waits until the main part of the page has a text.
func (p *Page) WaitText(text string) {
	p.t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Wait(`document.getElementById('main')?.innerText.includes(` + string(quoted) + `)`)
}

// Look sets the width in pixels of CSS, and light or dark.
func (p *Page) Look(width int64, dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.do("look", chromedp.EmulateViewport(width, 900), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

// Script turns JavaScript on or off, from the next page on.
func (p *Page) Script(on bool) {
	p.t.Helper()
	p.do("script", chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
		return err
	}))
}

// Screenshot writes the whole page as a PNG to a folder, which it makes, if that is not "".
func (p *Page) Screenshot(folder, name string) {
	p.t.Helper()
	if folder == "" {
		return
	}
	var png []byte
	p.do("screenshot", func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		whole, quick := true, true
		got, err := cdp.Call(ctx, target, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &whole, OptimizeForSpeed: &quick})
		if err == nil {
			png = got.Data
		}
		return chromedp.Void{}, err
	})
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// violation is a rule of axe-core that a page breaks.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// Accessible fails the test for each rule of axe-core that the page breaks. axe is its source.
// rules are its ids of those that are tried; none: all of them.
func (p *Page) Accessible(axe, what string, rules ...string) {
	p.t.Helper()
	only := ""
	if len(rules) > 0 {
		only = `, runOnly: ["` + strings.Join(rules, `", "`) + `"]`
	}
	var loaded bool
	if p.Evaluate(`!!window.axe`, &loaded); !loaded { // pages that follow begin with it, which takes less than to send it to each
		p.do("load axe-core", func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
			if _, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: axe}); err != nil {
				return chromedp.Void{}, err
			}
			return chromedp.Evaluate[chromedp.Void](axe)(ctx, target)
		})
	}
	var found []violation
	p.Evaluate(`axe.run(document, {resultTypes: ['violations'], preload: {assets: ['media']}`+only+`}).then(r => r.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map(n => ({html: n.html, failureSummary: n.failureSummary}))})))`, &found)
	for _, v := range found {
		for _, n := range v.Nodes {
			p.t.Errorf("%s: %s: %s: %.300s: %.400s", what, v.ID, v.Help, n.HTML, n.Summary)
		}
	}
}
