package command

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

// ProgressLine shows progress in one line of a terminal. Elsewhere it does nothing. finish clears
// the line.
func (a *App) ProgressLine() (show func(string), finish func()) {
	if !isTerminal(a.Err) {
		return func(string) {}, func() {}
	}
	var last time.Time
	show = func(text string) {
		if time.Since(last) >= 100*time.Millisecond {
			last = time.Now()
			fmt.Fprintf(a.Err, "\r%-60s", text)
		}
	}
	return show, func() { fmt.Fprint(a.Err, "\r", strings.Repeat(" ", 60), "\r") }
}

// Progress is a progress bar on a terminal. Elsewhere it does nothing.
type Progress struct {
	bar *progressbar.ProgressBar // nil: none
	out io.Writer
}

// Bar starts a progress bar over a number of things. done of them were finished in an earlier run.
// The bar counts the rest, so that its rate and the time left are right after a resumption.
func (a *App) Bar(things string, total, done int) *Progress {
	if !isTerminal(a.Err) || total == done {
		return &Progress{}
	}
	description := things
	if done > 0 {
		description = fmt.Sprintf("%s (%d done before)", things, done)
	}
	bar := progressbar.NewOptions(total-done,
		progressbar.OptionSetWriter(a.Err), progressbar.OptionSetDescription(description),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(things),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth())
	return &Progress{bar, a.Err}
}

// Add counts one thing more.
func (p *Progress) Add() {
	if p.bar != nil {
		_ = p.bar.Add(1) // a terminal that cannot be written to is no reason to stop
	}
}

// Finish ends the bar.
func (p *Progress) Finish() {
	if p.bar != nil {
		_ = p.bar.Exit()
		fmt.Fprintln(p.out) // the next output starts on a new line
	}
}
