package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// server is a forebay process, which may be killed and started again on the same database.
type server struct {
	client  *client.Client
	binary  string
	config  string
	dir     string
	address string
	process *exec.Cmd
	exited  chan error
}

func startServer(ctx context.Context, binary, config, dir string) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return startServerAt(ctx, binary, config, dir, address)
}

func startServerAt(ctx context.Context, binary, config, dir, address string) (*server, error) {
	c, err := client.New(client.Options{BaseURL: "http://" + address})
	if err != nil {
		return nil, err
	}
	s := &server{client: c, binary: binary, config: config, dir: dir, address: address}
	return s, s.start(ctx)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start runs the process and waits until it is ready.
func (s *server) start(ctx context.Context) error {
	log, err := os.OpenFile(s.log(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.process = exec.Command(s.binary, "serve", "--config", s.config, "--listen", s.address, "--database", s.database())
	s.process.Stderr = log
	s.process.SysProcAttr = apart() // Ctrl-C is for the demo, which then stops the server
	if err := s.process.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.binary, err)
	}
	s.exited = make(chan error, 1)
	go func() { s.exited <- s.process.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for !s.ready(ctx) {
		select {
		case err := <-s.exited:
			return fmt.Errorf("the server ended: %w%s", err, s.lastWords())
		case <-ctx.Done():
			return errors.New("the server does not become ready" + s.lastWords())
		case <-time.After(30 * time.Millisecond):
		}
	}
	return nil
}

// makeKey makes the API key of an operator in the server's database, and goes on with it.
func (s *server) makeKey(ctx context.Context) error {
	var problem strings.Builder
	create := exec.CommandContext(ctx, s.binary, "keys", "create", "--scopes", "admin", "--database", s.database(), "--output", "json")
	create.Stderr = &problem
	out, err := create.Output()
	if err != nil {
		return fmt.Errorf("make an API key: %w: %s", err, problem.String())
	}
	var made forebay.APIKey
	if err := json.Unmarshal(out, &made); err != nil {
		return fmt.Errorf("make an API key: %w", err)
	}
	s.client, err = client.New(client.Options{BaseURL: "http://" + s.address, Key: forebay.Secret(made.Key)})
	return err
}

func (s *server) database() string { return "sqlite:" + filepath.Join(s.dir, "demo.db") }

func (s *server) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// kill ends the process as a power cut would.
func (s *server) kill() {
	if s.process.ProcessState == nil {
		_ = s.process.Process.Kill()
		<-s.exited
		s.exited <- nil
	}
}

// stop ends the process gracefully.
func (s *server) stop() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := <-s.exited
	s.exited <- nil
	if err != nil {
		return fmt.Errorf("the server did not stop cleanly: %w", err)
	}
	return nil
}

func (s *server) log() string { return filepath.Join(s.dir, "server.log") }

// lastWords is the end of the server's log, to explain a failure.
func (s *server) lastWords() string {
	b, err := os.ReadFile(s.log())
	if err != nil || len(b) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return "\nthe server's last words:\n  " + strings.Join(lines[max(0, len(lines)-5):], "\n  ")
}
