package db

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/pgtest"
)

// Processes that answer the same kind of requests know how many they are, also once one has
// gone or has lost its connection.
func TestAnsweringCountsWhoLives(t *testing.T) {
	alone := serve(t, Options{Path: t.TempDir() + "/db", ServerKind: "http"})
	if n, err := alone.CountServers(t.Context()); n != 1 || err != nil {
		t.Errorf("%d on SQLite (%v)", n, err)
	}
	url := pgtest.Database(t)
	expect := func(s *DB, want int64) {
		t.Helper()
		look := time.NewTicker(20 * time.Millisecond)
		defer look.Stop()
		for deadline := time.Now().Add(time.Minute); ; <-look.C {
			n, err := s.CountServers(t.Context())
			if err == nil && n == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d processes, want %d (%v)", n, want, err)
			}
		}
	}
	var all []*DB
	for _, answers := range []string{"http", "http", "grpc", ""} {
		all = append(all, serve(t, Options{URL: url, ServerKind: answers}))
	}
	expect(all[0], 2)
	expect(all[1], 2)
	expect(all[2], 1)
	expect(all[3], 1)
	if n, err := pgtest.Terminate(t.Context(), url); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	for i, s := range all { // each connects again with what it does next
		for deadline := time.Now().Add(time.Minute); ; {
			_, err := Transact(t.Context(), s.Writer, Op{Stage: StageChange}, insertNames(fmt.Sprint(i), 1))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	expect(all[0], 2)
	if err := all[1].Close(); err != nil {
		t.Fatal(err)
	}
	expect(all[0], 1)
}
