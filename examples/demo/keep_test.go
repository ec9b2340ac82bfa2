package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/config"
	forebayserver "github.com/forebayhq/forebay/server"
)

// openOffice runs the server of make dashboard, with its work, until the test ends.
func openOffice(t *testing.T) (o *office, url string) {
	t.Helper()
	t.Chdir("../..") // the configuration names files from there
	loaded, err := config.Load(config.Source{File: "examples/demo/dashboard.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	options := loaded.Options
	dir := t.TempDir()
	options.Database, options.Listen, options.Log = "sqlite:"+dir+"/demo.db", "127.0.0.1:0", forebayserver.Log{Level: "error"}
	s, err := forebayserver.New(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	url = "http://" + s.Addr(t.Context()).String()
	c, err := client.New(client.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	docs, err := readDocuments("examples/documents")
	if err != nil {
		t.Fatal(err)
	}
	o = &office{server: &server{client: c, dir: dir, address: strings.TrimPrefix(url, "http://")}, docs: docs, draw: rand.New(rand.NewPCG(1, 2))}
	receiver, err := o.receive()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receiver.Close() })
	if err := o.fill(t.Context(), "http://"+receiver.Addr); err != nil {
		t.Fatal(err)
	}
	return o, url
}

// eventually waits until check returns true.
func eventually(t *testing.T, what string, check func(context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		ok, err := check(ctx)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("there is still not: %s", what)
		}
	}
}

// A dashboard opens on work of each kind, and most of it waits.
func TestEachPageHasSomething(t *testing.T) {
	o, _ := openOffice(t)
	eventually(t, "work that waits for the quota of a deployment", func(ctx context.Context) (bool, error) {
		backlog, err := o.client.Backlog(ctx, true)
		for _, line := range backlog.Lines {
			if line.Waiting > 50 && line.Limit.Kind == forebay.LimitQuota {
				return true, err
			}
		}
		return false, err
	})
	eventually(t, "a dead letter", func(ctx context.Context) (bool, error) {
		for _, err := range o.client.DeadLetters(forebay.DefaultQueue).List(ctx, forebay.SetAsideFilter{}, 10) {
			return err == nil, err
		}
		return false, nil
	})
	for _, tenant := range []string{"", "acme", "birch", "corvid"} {
		some := false
		for _, err := range o.client.ForTenant(tenant).List(t.Context(), forebay.JobFilter{Limit: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			some = true
			break
		}
		if !some {
			t.Errorf("tenant %q has no jobs", tenant)
		}
	}
	for path, want := range map[string]int{"/v1/batches": 1, "/v1/documents": 1, "/v1/webhooks": 2, "/v1/topics": 1} {
		var list struct{ Items, Data []any }
		if err := o.client.Call(t.Context(), "GET", path, nil, nil, &list); err != nil || len(list.Items)+len(list.Data) < want {
			t.Errorf("%s has %d, want %d: %v", path, len(list.Items)+len(list.Data), want, err)
		}
	}
	if queues, err := o.client.MessageQueues(t.Context()); err != nil || len(queues) == 0 {
		t.Errorf("there are %d queues of messages: %v", len(queues), err)
	}
	if err := o.topUp(t.Context()); err != nil {
		t.Error(err)
	}
}

// Who makes a key to try the dashboard's sign-in does not end the work.
func TestWorkGoesOnWithKeys(t *testing.T) {
	o, _ := openOffice(t)
	keys, err := forebayserver.OpenKeys(t.Context(), o.database())
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	first, err := keys.Create(t.Context(), "acme", []forebay.Scope{forebay.ScopeRead}, nil, forebay.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := keys.Create(t.Context(), forebay.DefaultTenant, []forebay.Scope{forebay.ScopeAdmin}, nil, forebay.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	// The command that makes a key, as this test has no program of its own.
	want := "keys create --scopes admin --database " + o.database() + " --output json"
	o.binary = filepath.Join(t.TempDir(), "forebay")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$*\" = '%s' ] || exit 7\necho '{\"key\":\"%s\"}'\n", want, own.Key)
	if err := os.WriteFile(o.binary, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	eventually(t, "a server that asks for a key", func(ctx context.Context) (bool, error) {
		_, err := o.client.Backlog(ctx, true)
		return forebay.CodeOf(err) == forebay.CodeUnauthorized, nil
	})
	if err := o.allowed(t.Context(), func() error { return o.submit(t.Context(), 3) }); err != nil {
		t.Fatalf("with the key %s: %v", first.ID, err)
	}
	if err := o.topUp(t.Context()); err != nil {
		t.Error(err)
	}
}
