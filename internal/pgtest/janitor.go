//go:build unix

package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// janitorVariable makes any program that imports this package a janitor: it holds a duty as JSON.
const janitorVariable = "FOREBAY_PGTEST_JANITOR"

// duty is what a janitor does.
type duty struct {
	Path   string        // of the server's folder
	Serve  bool          // start the server first, and say so on standard output
	Linger time.Duration // how long the server stays when nobody uses it
}

// A janitor is this program, run once more, because only a process of its own outlives the tests.
// It starts in init, because a test binary's main runs tests.
func init() {
	raw, ok := os.LookupEnv(janitorVariable)
	if !ok {
		return
	}
	var d duty
	err := json.Unmarshal([]byte(raw), &d)
	if err == nil {
		err = d.carryOut()
	}
	if err != nil {
		fmt.Fprint(os.Stdout, err)
		os.Exit(1) //nolint:forbidigo // this is the process's main function
	}
	os.Exit(0) //nolint:forbidigo // as above
}

// startJanitor starts a janitor for a folder. Its output goes to out.
func startJanitor(path string, d duty, out *os.File) (*exec.Cmd, error) {
	d.Path = path
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Dir = "/" // it must not keep a folder of the tests busy
	cmd.Env = append(os.Environ(), janitorVariable+"="+string(raw))
	if out != nil {
		cmd.Stdout = out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that cleans up: %w", err)
	}
	return cmd, nil
}

// carryOut returns once the server and its folder are gone.
func (d duty) carryOut() error {
	janitor := flock.New(filepath.Join(d.Path, janitorFile))
	if first, err := janitor.TryLock(); errors.Is(err, os.ErrNotExist) || err == nil && !first {
		return nil // the user is done already, or there is a janitor
	} else if err != nil {
		return err
	}
	if d.Serve {
		c, err := create(context.Background(), d.Path, "", nil)
		if err != nil {
			return errors.Join(err, os.RemoveAll(d.Path))
		}
		if err := publish(d.Path, c.URL()); err != nil {
			return errors.Join(err, c.Stop(Immediate), os.RemoveAll(d.Path))
		}
		fmt.Fprint(os.Stdout, readyLine)
		os.Stdout.Close()
	}
	root := filepath.Dir(d.Path)
	for {
		users := flock.New(filepath.Join(d.Path, usersFile))
		if err := users.Lock(); err != nil {
			return nil // the user has removed the folder
		}
		users.Unlock()
		wait(d.Linger)
		unlock, err := lockStart(root)
		if err != nil {
			return nil // as above
		}
		unused, err := users.TryLock()
		if unused || err != nil {
			destroy(d.Path)
			unlock()
			return nil
		}
		unlock()
	}
}
