package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// echo is a task whose result is its input.
var echo = forebay.Task{Name: "echo", MaxAttempts: 3, Run: func(_ context.Context, call forebay.TaskCall) (forebay.TaskResult, error) {
	return forebay.TaskResult{Output: call.Input}, nil
}}

func silent(server.BackupProgress) {}

// echoing are the options of a server on a database that runs echo.
func echoing(t *testing.T, database string) server.Options {
	return server.Options{
		Database: database, Blob: filepath.Join(t.TempDir(), "blobs"), Functions: []forebay.Task{echo},
		Logger: slog.New(slog.DiscardHandler),
	}
}

// A backup during submits and endings of jobs contains everything that was acknowledged before, on
// either kind of database. The restored database works.
func TestBackupWhileServing(t *testing.T) {
	t.Parallel()
	engines := map[string]func(*testing.T) string{
		"sqlite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "forebay.db") },
		"postgresql": func(t *testing.T) string { return pgtest.Database(t) },
	}
	for from, to := range map[string]string{"sqlite": "postgresql", "postgresql": "sqlite"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			o := echoing(t, engines[from](t))
			s := servertest.Over(t, servertest.Start(t, o))
			large := strings.Repeat("x", 300_000) // more than a row holds
			sums := map[string][sha256.Size]byte{}
			submit := func(ctx context.Context, n int) (string, [sha256.Size]byte, error) {
				input := fmt.Sprint(n)
				if n%5 == 0 {
					input += large
				}
				job, _, err := s.Submit(ctx, "", map[string]any{"task": "echo", "input": input})
				quoted, _ := json.Marshal(input)
				return job.ID, sha256.Sum256(quoted), err
			}
			for n := range 30 {
				id, sum, err := submit(t.Context(), n)
				if err != nil {
					t.Fatal(err)
				}
				sums[id] = sum
			}
			ctx, stop := context.WithCancel(t.Context())
			var busy sync.WaitGroup
			busy.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					if _, _, err := submit(ctx, n); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
			folder := filepath.Join(t.TempDir(), "backup")
			made, err := server.MakeBackup(t.Context(), o, folder, silent)
			stop()
			busy.Wait()
			if err != nil || made.Payloads < 6 {
				t.Fatalf("%+v: %v", made, err)
			}
			if again, err := server.CheckBackup(t.Context(), folder, silent); err != nil || again.DatabaseSHA256 != made.DatabaseSHA256 {
				t.Fatal(err)
			}
			back := echoing(t, engines[to](t))
			if _, err := server.RestoreBackup(t.Context(), back, folder, silent); err != nil {
				t.Fatal(err)
			}
			if _, err := server.RestoreBackup(t.Context(), back, folder, silent); err == nil || !strings.HasPrefix(err.Error(), "database: this database is not empty") {
				t.Errorf("a database that is not empty: %v", err)
			}
			restored := servertest.Over(t, servertest.Start(t, back))
			for id, sum := range sums {
				job, err := restored.Await(t.Context(), id)
				if err != nil || job.Status != forebay.StatusSucceeded {
					t.Fatalf("%s: %s %v", id, job.Status, err)
				}
				if resultSum(t, restored, job) != sum {
					t.Fatalf("%s has another result", id)
				}
			}
		})
	}
}

// A backup that is not as it was written is refused before anything of it can be used.
func TestDamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	o := echoing(t, "sqlite:"+filepath.Join(t.TempDir(), "forebay.db"))
	s := servertest.Over(t, servertest.Start(t, o))
	job, _, err := s.Submit(t.Context(), "", map[string]any{"task": "echo", "input": strings.Repeat("x", 300_000)})
	if err == nil {
		_, err = s.Await(t.Context(), job.ID)
	}
	folder := filepath.Join(t.TempDir(), "backup")
	if err == nil {
		_, err = server.MakeBackup(t.Context(), o, folder, silent)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.MakeBackup(t.Context(), o, folder, silent); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a folder that is not empty: %v", err)
	}
	payloads, err := filepath.Glob(filepath.Join(folder, "payloads", "t.*"))
	if err != nil || len(payloads) == 0 {
		t.Fatal(payloads, err)
	}
	back := echoing(t, "sqlite:"+filepath.Join(t.TempDir(), "forebay.db"))
	for _, path := range []string{filepath.Join(folder, "forebay.db"), filepath.Join(folder, "payloads.txt"), payloads[0]} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := append([]byte{}, content...)
		changed[len(changed)/2] ^= 1
		writeFile(t, path, changed)
		_, checked := server.CheckBackup(t.Context(), folder, silent)
		_, restored := server.RestoreBackup(t.Context(), back, folder, silent)
		for _, err := range []error{checked, restored} {
			if err == nil || !strings.Contains(err.Error(), "damaged") || strings.Contains(err.Error(), folder) {
				t.Errorf("%s: %v", filepath.Base(path), err)
			}
		}
		writeFile(t, path, content)
	}
	if err := os.Remove(payloads[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := server.CheckBackup(t.Context(), folder, silent); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a payload is missing: %v", err)
	}
}

// A restore that is interrupted serves nobody until it is repeated, and is then complete.
func TestInterruptedRestoreGoesOn(t *testing.T) {
	t.Parallel()
	o := echoing(t, "sqlite:"+filepath.Join(t.TempDir(), "forebay.db"))
	s := servertest.Over(t, servertest.Start(t, o))
	ids := servertest.SubmitMany(t, s, 1500, map[string]any{"task": "echo", "input": "x"})
	folder := filepath.Join(t.TempDir(), "backup")
	if _, err := server.MakeBackup(t.Context(), o, folder, silent); err != nil {
		t.Fatal(err)
	}
	back := echoing(t, "sqlite:"+filepath.Join(t.TempDir(), "forebay.db"))
	ctx, cut := context.WithCancel(t.Context())
	_, err := server.RestoreBackup(ctx, back, folder, func(p server.BackupProgress) {
		if p.What == "copying jobs" {
			cut()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	back.Listen = "127.0.0.1:0"
	if _, err := server.New(back); err == nil || !strings.Contains(err.Error(), "unfinished") {
		t.Fatalf("a server runs on half a restore: %v", err)
	}
	if _, err := server.RestoreBackup(t.Context(), back, folder, silent); err != nil {
		t.Fatal(err)
	}
	restored := servertest.Over(t, servertest.Start(t, back))
	for _, id := range []string{ids[0], ids[750], ids[1499]} {
		if job, err := restored.Await(t.Context(), id); err != nil || job.Status != forebay.StatusSucceeded {
			t.Fatalf("%s: %s %v", id, job.Status, err)
		}
	}
}

// A payload that the storage has lost is told; nothing is left that looks like a backup.
func TestBackupNeedsEveryPayload(t *testing.T) {
	t.Parallel()
	o := echoing(t, "sqlite:"+filepath.Join(t.TempDir(), "forebay.db"))
	s := servertest.Over(t, servertest.Start(t, o))
	job, _, err := s.Submit(t.Context(), "", map[string]any{"task": "echo", "input": strings.Repeat("x", 300_000)})
	if err == nil {
		_, err = s.Await(t.Context(), job.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	other := o
	other.Blob = filepath.Join(t.TempDir(), "other")
	folder := filepath.Join(t.TempDir(), "backup")
	if _, err := server.MakeBackup(t.Context(), other, folder, silent); err == nil || !strings.Contains(err.Error(), "not in the blob storage") {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(folder), "*backup*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
