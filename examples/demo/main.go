// Command demo shows Forebay's main job. It starts a server whose model misbehaves, submits real
// documents and breaks things while they are processed. It ends with what became of every job.
// Its exit code is 0 only if each job ended as it should.
//
// With -keep it gives a server work of many kinds instead, more than the simulated quota allows.
// It leaves the server open until Ctrl-C, for a look at its dashboard.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/forebayhq/forebay"
)

func main() {
	binary := flag.String("forebay", "bin/forebay", "the forebay program")
	documents := flag.String("documents", "examples/documents", "the folder of documents")
	stay := flag.Bool("keep", false, "leave the server and its dashboard open, with work that waits, until Ctrl-C")
	config := flag.String("config", "", "the server's configuration (default examples/demo/forebay.yaml, with -keep dashboard.yaml)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *binary, *config, *documents, *stay); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, config, folder string, stay bool) error {
	dir, err := os.MkdirTemp("", "forebay-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	docs, err := readDocuments(folder)
	if err != nil {
		return err
	}
	if stay {
		return keep(ctx, binary, cmp.Or(config, "examples/demo/dashboard.yaml"), dir, docs)
	}
	ctx, cancel := context.WithTimeout(ctx, 85*time.Second)
	defer cancel()
	fmt.Printf("Starting forebay on SQLite with a simulated model: %d documents wait.\n", len(docs))
	s, err := startServer(ctx, binary, cmp.Or(config, "examples/demo/forebay.yaml"), dir)
	if err != nil {
		return err
	}
	defer s.kill()
	d := &demo{server: s, docs: docs}
	if err := d.submit(ctx); err != nil {
		return fmt.Errorf("submit: %w%s", err, s.lastWords())
	}
	if err := d.follow(ctx); err != nil {
		return fmt.Errorf("%w%s", err, s.lastWords())
	}
	if err := d.conclude(ctx); err != nil {
		return err
	}
	return s.stop()
}

// document is one text and the jobs that were made of it.
type document struct {
	name string
	text string
}

// poison is the document that the model refuses.
const poison = "poison-letter-test-phrase.txt"

func readDocuments(folder string) ([]document, error) {
	var docs []document
	for _, pattern := range []string{"*.txt", "*.md"} {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if filepath.Base(file) == "README.md" {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			docs = append(docs, document{name: filepath.Base(file), text: string(text)})
		}
	}
	if len(docs) < 60 {
		return nil, errors.New("the folder of documents is not complete")
	}
	return docs, nil
}

// expected says how a job must end.
func expected(j forebay.Job) bool {
	if j.Metadata["document"] == poison {
		return j.Status == forebay.StatusFailed && j.Error != nil && j.Error.Code == "content_filter"
	}
	return j.Status == forebay.StatusSucceeded
}
