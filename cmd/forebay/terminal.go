package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progressLine is a line on a terminal that is written over again and again. Elsewhere it is
// nothing.
func (a *app) progressLine() (show func(string), finish func()) {
	if !isTerminal(a.err) {
		return func(string) {}, func() {}
	}
	var last time.Time
	show = func(text string) {
		if time.Since(last) >= 100*time.Millisecond {
			last = time.Now()
			fmt.Fprintf(a.err, "\r%-60s", text)
		}
	}
	return show, func() { fmt.Fprint(a.err, "\r", strings.Repeat(" ", 60), "\r") }
}

// progress is a bar on a terminal. Elsewhere it is nothing. It shows what this run has to do, so
// its rate and the time left are also right after a resumption.
type progress struct {
	bar *progressbar.ProgressBar // nil: none
	out io.Writer
}

func (a *app) bar(jobs, done int) *progress {
	if !isTerminal(a.err) || jobs == done {
		return &progress{}
	}
	description := "jobs"
	if done > 0 {
		description = fmt.Sprintf("jobs (%d done before)", done)
	}
	bar := progressbar.NewOptions(jobs-done,
		progressbar.OptionSetWriter(a.err), progressbar.OptionSetDescription(description),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("jobs"),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth())
	return &progress{bar, a.err}
}

func (p *progress) add() {
	if p.bar != nil {
		_ = p.bar.Add(1) // a terminal that cannot be written to is no reason to stop
	}
}

func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Exit()
		fmt.Fprintln(p.out) // what comes next stands on a line of its own
	}
}
