package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/extract"
)

// shelf is a server that has documents and counts uploads.
type shelf struct {
	*httptest.Server
	documents map[string]forebay.Document
	uploads   []string
	down      bool
}

func newShelf(t *testing.T) *shelf {
	s := &shelf{documents: map[string]forebay.Document{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/documents/{id}", func(w http.ResponseWriter, r *http.Request) {
		if d, ok := s.documents[r.PathValue("id")]; ok {
			json.NewEncoder(w).Encode(d)
			return
		}
		s.refuse(w, http.StatusNotFound, forebay.CodeNotFound)
	})
	mux.HandleFunc("POST /v1/documents", func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil || len(content) == 0 {
			s.refuse(w, http.StatusUnprocessableEntity, forebay.CodeDocumentEmpty)
			return
		}
		hash := sha256.Sum256(content)
		d := forebay.Document{ID: r.URL.Query().Get("id"), Name: r.URL.Query().Get("name"), ContentHash: "sha256:" + hex.EncodeToString(hash[:])}
		kind, _, _, err := extract.KindOf(r.Header.Get("Content-Type"), d.Name, content)
		if err != nil {
			s.refuse(w, http.StatusUnsupportedMediaType, forebay.CodeUnsupportedMedia)
			return
		}
		d.ContentType = string(kind)
		s.documents[d.ID] = d
		s.uploads = append(s.uploads, r.URL.Query().Get("metadata"))
		w.WriteHeader(http.StatusAccepted)
		json.NewEncoder(w).Encode(d)
	})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down {
			s.refuse(w, http.StatusInternalServerError, forebay.CodeInternal)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *shelf) refuse(w http.ResponseWriter, status int, code forebay.Code) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":"no"}`, status, code)
}

// watching is a folder and a watcher of it whose clock the test moves.
type watching struct {
	*watcher
	t      *testing.T
	now    time.Time
	output strings.Builder
	errors strings.Builder
}

func (s *shelf) watch(t *testing.T, dir string) *watching {
	t.Helper()
	w := &watching{t: t, now: time.Now().Add(time.Hour)}
	api, err := client.New(client.Options{BaseURL: s.URL, RetryTime: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	a := &command.App{Out: &w.output, Err: &w.errors, Now: func() time.Time { return w.now }, Output: command.OutputTable}
	w.watcher = &watcher{App: a, api: api, dir: dir, settle: 2 * time.Second, files: map[string]*watchedFile{}}
	return w
}

// write writes a file that was changed right now, by the watcher's clock.
func (w *watching) write(name, content string) {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(content), 0o644)
	}
	if err == nil {
		err = os.Chtimes(file, w.now, w.now)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// after lets time pass and looks.
func (w *watching) after(d time.Duration) {
	w.t.Helper()
	w.now = w.now.Add(d)
	if err := w.scan(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	s := newShelf(t)
	w := s.watch(t, t.TempDir())
	want := func(uploads ...string) {
		t.Helper()
		if got := strings.Join(s.uploads, " "); got != strings.Join(uploads, " ") {
			t.Errorf("uploaded %q, want %q", got, uploads)
		}
	}
	w.write("a.txt", "one")
	w.write("sub folder/b.md", "two")
	w.write("picture.png", "no")
	w.write(".hidden/c.txt", "no")
	w.after(time.Second)
	want()
	w.write("a.txt", "one and") // somebody still writes
	w.after(1500 * time.Millisecond)
	want("path=sub folder/b.md")
	w.after(time.Second)
	want("path=sub folder/b.md", "path=a.txt")
	w.after(time.Hour)
	want("path=sub folder/b.md", "path=a.txt")

	// Another one, later, knows nothing but what the server has.
	again := s.watch(t, w.dir)
	again.now = w.now
	again.after(time.Minute)
	want("path=sub folder/b.md", "path=a.txt")
	again.write("a.txt", "one and more")
	s.down = true
	again.after(time.Minute)
	want("path=sub folder/b.md", "path=a.txt")
	s.down = false
	again.after(time.Minute)
	want("path=sub folder/b.md", "path=a.txt", "path=a.txt")
	if !strings.Contains(again.errors.String(), "a.txt") {
		t.Errorf("said %q", again.errors.String())
	}

	// What the server has under another type or name is sent again, and once.
	for id, d := range s.documents {
		if d.Name == "b.md" {
			d.ContentType = "text/plain"
		} else {
			d.Name = "b.txt"
		}
		s.documents[id] = d
	}
	s.uploads = nil
	again = s.watch(t, w.dir)
	again.now = w.now.Add(time.Hour)
	again.after(time.Minute)
	again.after(time.Minute)
	want("path=a.txt", "path=sub folder/b.md")
	for _, d := range s.documents {
		if d.Name == "b.md" != (d.ContentType == "text/markdown") {
			t.Errorf("%+v", d)
		}
	}
	s.watch(t, w.dir).after(time.Minute)
	want("path=a.txt", "path=sub folder/b.md")
	s.uploads = nil

	// While there is no server that is told once, and nothing is lost.
	again.write("c.txt", "three")
	again.write("d.txt", "four")
	again.errors.Reset()
	reachable := again.api
	unreachable, err := client.New(client.Options{BaseURL: "http://127.0.0.1:1", RetryTime: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	again.api = unreachable
	again.after(time.Minute)
	again.after(time.Minute)
	if said := again.errors.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "cannot reach the server") {
		t.Errorf("said %q", said)
	}
	again.api = reachable
	again.after(time.Minute)
	want("path=c.txt", "path=d.txt")

	again.write("empty.txt", "")
	again.after(time.Minute)
	again.after(time.Minute)
	if again.refused != 1 || len(s.documents) != 4 {
		t.Errorf("%d refused, %d documents", again.refused, len(s.documents))
	}
}

func TestWatchOnce(t *testing.T) {
	s := newShelf(t)
	dir := t.TempDir()
	w := watching{watcher: &watcher{dir: dir}, t: t, now: testNow.Add(-time.Hour)}
	w.write("a.txt", "one")
	got := commandLine{url: s.URL}.run(t.Context(), "watch", dir, "--once")
	if got.code != command.ExitOK || len(s.uploads) != 1 || !strings.HasPrefix(got.out, "a.txt  file:a.txt-") {
		t.Errorf("%+v, %q", got, s.uploads)
	}
	w.write("b.txt", "")
	if got = (commandLine{url: s.URL}).run(t.Context(), "watch", dir, "--once"); got.code != command.ExitFailed || len(s.uploads) != 1 {
		t.Errorf("%+v, %q", got, s.uploads)
	}
	if got = (commandLine{url: s.URL}).run(t.Context(), "watch", filepath.Join(dir, "a.txt")); got.code != command.ExitUsage {
		t.Errorf("%+v", got)
	}
}
