//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// At SIGHUP a server applies the changes of its file. A broken file changes nothing.
func TestReloadOnSIGHUP(t *testing.T) {
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const base = `
deployments:
  - {name: first, provider: sim, sim: {latency: %s}}
models: {small: [first]}
tasks: {ask: {extends: chat, model: small}}
`
	write(fmt.Sprintf(base, "1ms"))
	ctx, cancel := context.WithCancel(t.Context())
	log, stderr := io.Pipe()
	exited := make(chan int, 1)
	a := &command.App{In: strings.NewReader(""), Out: io.Discard, Err: stderr, Now: time.Now, Zone: time.UTC}
	go func() {
		code := a.Run(ctx, root(a), []string{"serve", "--config", file, "--listen", "127.0.0.1:0", "--database", "sqlite:" + filepath.Join(t.TempDir(), "forebay.db")})
		stderr.Close()
		exited <- code
	}()
	t.Cleanup(func() {
		cancel()
		<-exited
	})
	type entry struct {
		Message  string   `json:"msg"`
		Listen   string   `json:"listen"`
		Problems string   `json:"problems"`
		Restart  []string `json:"restart"`
	}
	entries := make(chan entry, 1000)
	go func() {
		defer close(entries)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			var e entry
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				entries <- e
			}
		}
	}()
	await := func(message string) entry {
		t.Helper()
		for e := range entries {
			if strings.HasPrefix(e.Message, message) {
				return e
			}
		}
		t.Fatalf("the log ended without %q", message)
		return entry{}
	}
	url := "http://" + await("forebay is running").Listen
	hangUp := func(content string) entry {
		t.Helper()
		write(content)
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		return await("the new configuration is")
	}
	run := func(task string) (deployment string) {
		t.Helper()
		out := commandLine{url: url}.run(t.Context(), "submit", task, "--input", "x", "--wait", "-o", "json")
		if out.code != 0 {
			t.Fatalf("%s: exit code %d, %s%s", task, out.code, out.out, out.err)
		}
		shown := commandLine{url: url}.run(t.Context(), "jobs", "list", "-o", "json", "--limit", "1")
		var list []forebay.Job
		if err := json.Unmarshal([]byte(shown.out), &list); err != nil || len(list) != 1 {
			t.Fatalf("%v: %s", err, shown.out)
		}
		res, err := http.Get(url + "/v1/jobs/" + list[0].ID + "/attempts")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var attempts forebay.Page[forebay.Attempt]
		if err := json.NewDecoder(res.Body).Decode(&attempts); err != nil || len(attempts.Items) != 1 {
			t.Fatalf("%v: %+v", err, attempts)
		}
		return attempts.Items[0].Deployment
	}
	deployments := func() (names []string) {
		t.Helper()
		res, err := http.Get(url + "/v1/deployments")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var page forebay.Page[forebay.Deployment]
		if err := json.NewDecoder(res.Body).Decode(&page); err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Items {
			names = append(names, d.Name)
		}
		return names
	}
	run("ask")

	if e := hangUp(strings.Replace(fmt.Sprintf(base, "1ms"), "model: small", "mdl: small", 1)); !strings.Contains(e.Message, "refused") || !strings.Contains(e.Problems, "mdl") {
		t.Errorf("a broken file: %+v", e)
	}
	if e := hangUp(strings.Replace(fmt.Sprintf(base, "1ms"), "[first]", "[nobody]", 1)); !strings.Contains(e.Message, "refused") || !strings.Contains(e.Problems, "nobody") {
		t.Errorf("a file that makes no sense: %+v", e)
	}
	run("ask")
	if got := deployments(); !slices.Equal(got, []string{"first"}) {
		t.Errorf("deployments %v after refused files", got)
	}

	const next = `
listen: 127.0.0.1:1
deployments:
  - {name: second, provider: sim}
  - {name: third, provider: sim}
models: {small: [second], large: [third]}
tasks:
  ask: {extends: chat, model: small}
  again: {extends: chat, model: large}
tenants: {default: {limits: {waiting_jobs: 0}}}
`
	if e := hangUp(strings.Replace(next, "listen: 127.0.0.1:1\n", "retention: {succeeded: 100h}\n", 1)); !slices.Equal(e.Restart, []string{"retention"}) {
		t.Errorf("a file with a change that needs a restart: %+v", e)
	}
	if got := deployments(); !slices.Equal(got, []string{"second", "third"}) {
		t.Errorf("deployments %v", got)
	}
	for task, deployment := range map[string]string{"ask": "second", "again": "third"} {
		if got := run(task); got != deployment {
			t.Errorf("%s was called at %q", task, got)
		}
	}
}
