package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/extract"
)

// watchable are the extensions of the files that are documents.
var watchable = []string{".txt", ".text", ".log", ".md", ".markdown", ".html", ".htm", ".xhtml", ".pdf"}

func watch(a *command.App) *cobra.Command {
	w := &watcher{App: a, files: map[string]*watchedFile{}}
	var every time.Duration
	var once bool
	c := a.APICommand(&cobra.Command{
		Use: "watch DIR", Short: "Add the documents of a folder, and what changes in it",
		Long: `Add each text, Markdown, HTML and PDF file below a folder as a document, and again when its
content changes. A file is taken once it has not changed for a while. Hidden files and links are
left out. A file that is deleted leaves its document.

The server knows what it has by its content, its name and its type. So the command can be stopped
and started at any time.`,
		Example: "  forebay watch ./inbox\n  forebay watch ./inbox --once",
	}, func(c *command.Call) error {
		if every <= 0 || w.settle < 0 {
			return command.Usagef("--every must be more than 0, and --settle not less")
		}
		if info, err := os.Stat(c.Args[0]); err != nil || !info.IsDir() {
			return command.Usagef("%s is no folder", c.Args[0])
		}
		w.api, w.dir = c.API, c.Args[0]
		return w.run(c.Ctx, every, once)
	})
	flags := c.Flags()
	flags.DurationVar(&every, "every", 2*time.Second, "how often to look")
	flags.DurationVar(&w.settle, "settle", 2*time.Second, "how long a file must not have changed")
	flags.BoolVar(&once, "once", false, "end when every file has been taken, or refused")
	return c
}

// watcher remembers what it has seen in a folder. The server knows which documents it has.
type watcher struct {
	*command.App
	api     *client.Client
	dir     string
	settle  time.Duration
	files   map[string]*watchedFile
	refused int
	away    string // why the server accepts nothing now; "": it accepts documents
}

// watchedFile is a file as the last scan saw it.
type watchedFile struct {
	size    int64
	changed time.Time // its modification time
	since   time.Time // when a scan first saw it like this
	done    bool      // added or refused
	trouble string    // the last message about it
}

// run scans the folder repeatedly until ctx ends. With once it returns when nothing is left to do.
func (w *watcher) run(ctx context.Context, every time.Duration, once bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := w.scan(ctx); err != nil {
			return err
		}
		if once && !slices.ContainsFunc(slices.Collect(maps.Values(w.files)), func(f *watchedFile) bool { return !f.done }) {
			if w.refused > 0 {
				return command.Failf("files that were refused: %d", w.refused)
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// scan goes through the folder and adds each file that has settled.
func (w *watcher) scan(ctx context.Context) error {
	there := map[string]bool{}
	before := w.away
	w.away = ""
	err := filepath.WalkDir(w.dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			if name == w.dir {
				return command.Usagef("cannot read %s: %s", name, command.Cause(err))
			}
			return nil // removed meanwhile, or not a document
		}
		if name != w.dir && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || !slices.Contains(watchable, strings.ToLower(filepath.Ext(name))) {
			return nil
		}
		there[name] = true
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		if w.settled(name, info) && w.away == "" {
			return w.add(ctx, name)
		}
		return nil
	})
	if w.away != "" && w.away != before {
		fmt.Fprintln(w.Err, "forebay: "+command.Clean(w.away)+"; trying again")
	}
	maps.DeleteFunc(w.files, func(name string, _ *watchedFile) bool { return !there[name] })
	return err
}

// settled reports whether a file has stayed the same for long enough.
func (w *watcher) settled(name string, info fs.FileInfo) bool {
	now := w.Now()
	f := w.files[name]
	if f == nil || f.size != info.Size() || !f.changed.Equal(info.ModTime()) {
		f = &watchedFile{size: info.Size(), changed: info.ModTime(), since: now}
		if quiet := now.Sub(info.ModTime()); quiet > 0 { // counts time before the command started
			f.since = info.ModTime()
		}
		w.files[name] = f
	}
	return !f.done && now.Sub(f.since) >= w.settle
}

// add adds a file as a document, unless the server has that content already. An error ends the
// command.
func (w *watcher) add(ctx context.Context, name string) error {
	relative, err := filepath.Rel(w.dir, name)
	if err != nil {
		return err
	}
	relative = filepath.ToSlash(relative)
	content, err := w.ReadFile(ctx, name, maxDocumentBytes)
	if err != nil {
		return w.refuse(ctx, name, err)
	}
	hash := sha256.Sum256(content)
	n := forebay.NewDocument{ID: watchedID(relative), Name: filepath.Base(name), Metadata: map[string]string{"path": relative}}
	before, err := w.api.Document(ctx, n.ID)
	if err != nil && !errors.Is(err, forebay.ErrNotFound) {
		return w.refuse(ctx, name, err)
	}
	kind, _, _, unknown := extract.KindOf("", n.Name, content)
	known := err == nil && before.ContentHash == "sha256:"+hex.EncodeToString(hash[:]) && before.Name == n.Name &&
		(unknown != nil || before.ContentType == string(kind))
	if !known {
		d, _, err := w.api.AddDocument(ctx, n, content)
		if err != nil {
			return w.refuse(ctx, name, err)
		}
		if err := w.printAdded(relative, d); err != nil {
			return err
		}
	}
	w.files[name].done = true
	return nil
}

func (w *watcher) printAdded(relative string, d forebay.Document) error {
	if w.Output != command.OutputTable {
		return command.WriteJSON(w.Out, d, "")
	}
	_, err := fmt.Fprintf(w.Out, "%s  %s\n", command.Clean(relative), d.ID)
	return err
}

// refuse prints why a file was not added. The next scan tries again if the error may be temporary.
// If the key may not add documents at all, the command ends.
func (w *watcher) refuse(ctx context.Context, name string, err error) error {
	code := forebay.CodeOf(err)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch code {
	case forebay.CodeUnauthorized, forebay.CodeForbidden, forebay.CodeNotSupported:
		return err
	case forebay.CodeUnavailable, forebay.CodeTooManyRequests, forebay.CodeRateLimited, forebay.CodeTenantLimit:
		w.away = err.Error() // the next scan tries the rest
		return nil
	}
	f := w.files[name]
	if code != forebay.CodeStorageFull && code != forebay.CodeInternal {
		f.done = true
		w.refused++
	}
	if said := name + ": " + err.Error(); said != f.trouble {
		f.trouble = said
		fmt.Fprintln(w.Err, "forebay: "+command.Clean(said))
	}
	return nil
}

// watchedID makes the id of a document from the path of its file below the folder.
func watchedID(relative string) string {
	const words = 80
	slug := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, relative)
	hash := sha256.Sum256([]byte(relative))
	return "file:" + slug[:min(len(slug), words)] + "-" + hex.EncodeToString(hash[:6])
}
