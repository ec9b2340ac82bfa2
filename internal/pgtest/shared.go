//go:build unix

package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

const (
	sharedFile = "shared.json"
	readyLine  = "ready"
)

// linger is how long a server lives without users, so that the next test binary finds it.
var linger = 10 * time.Second

// published is what sharedFile holds.
type published struct {
	Path string // of the server's folder
	URL  string
}

// share keeps the shared server alive for as long as this process lives.
var share struct {
	once  sync.Once
	users *flock.Flock
	url   string
	err   error
}

// shared returns the address of the server that all test binaries of the machine's user share.
func shared(ctx context.Context) (string, error) {
	share.once.Do(func() { share.url, share.users, share.err = join(ctx) })
	return share.url, share.err
}

// join uses the running server, or starts one.
func join(ctx context.Context) (string, *flock.Flock, error) {
	root, err := defaultRoot()
	if err != nil {
		return "", nil, err
	}
	unlock, err := lockStart(root)
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	at, err := running(ctx, root)
	if errors.Is(err, errNotFound) {
		return start(root)
	} else if err != nil {
		return "", nil, err
	}
	users, err := use(at.Path)
	if err != nil {
		return "", nil, err
	}
	// Usually a janitor exists, and this one exits at once. But processes get killed.
	janitor, err := startJanitor(at.Path, duty{Linger: linger}, nil)
	if err != nil {
		return "", nil, err
	}
	return at.URL, users, janitor.Process.Release()
}

// running returns the shared server if it answers.
func running(ctx context.Context, root string) (at published, err error) {
	content, err := os.ReadFile(filepath.Join(root, sharedFile))
	if errors.Is(err, os.ErrNotExist) {
		return at, errNotFound
	} else if err != nil {
		return at, err
	}
	if json.Unmarshal(content, &at) != nil || filepath.Dir(at.Path) != root || ping(ctx, at.URL) != nil {
		return at, errNotFound
	}
	return at, nil
}

// start makes a janitor start the server, so that it is not a child of a test.
func start(root string) (string, *flock.Flock, error) {
	f, err := makeFolder(root)
	if err != nil {
		return "", nil, err
	}
	said, out, err := os.Pipe()
	if err != nil {
		return "", nil, errors.Join(err, f.close())
	}
	defer said.Close()
	janitor, err := startJanitor(f.path, duty{Serve: true, Linger: linger}, out)
	out.Close()
	if err != nil {
		return "", nil, errors.Join(err, f.close())
	}
	answer, err := io.ReadAll(said)
	if err != nil || string(answer) != readyLine {
		f.users.Close()
		return "", nil, errors.Join(err, errors.New(strings.TrimSpace(string(answer))), janitor.Wait())
	}
	at, err := running(context.Background(), root)
	if err != nil {
		return "", nil, fmt.Errorf("the server that was just started: %w", err)
	}
	return at.URL, f.users, janitor.Process.Release()
}

// publish tells others of the shared server.
func publish(path, address string) error {
	content, err := json.Marshal(published{path, address})
	if err != nil {
		return err
	}
	name := filepath.Join(filepath.Dir(path), sharedFile)
	draft := filepath.Join(path, sharedFile)
	if err := os.WriteFile(draft, content, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, name)
}
