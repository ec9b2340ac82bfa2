//go:build unix

package payload_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/payload"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/stores"
)

// The large input of a job whose commit waits for a standby is kept, though its client was told
// of a failure long ago. The job can be seen once the wait is over.
func TestInputOfACommitThatWaitsForAStandby(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, nil)
	admin, err := pgx.Connect(t.Context(), cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close(context.WithoutCancel(t.Context())) })
	st, err := stores.Open(t.Context(), db.Options{URL: cluster.Database(t), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	s := newRefusingOn(t, "", st)
	if removed, err := s.payloads.Sweep(t.Context()); err != nil || removed != 0 {
		t.Errorf("swept %d: %v", removed, err)
	}
	standby := func(name string) {
		t.Helper()
		for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + name + "'", "SELECT pg_reload_conf()"} {
			if _, err := admin.Exec(context.WithoutCancel(t.Context()), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Error(err)
			}
		}
	}
	submit := func() error {
		_, _, err := s.Submit(t.Context(), forebay.DefaultTenant, forebay.SubmitRequest{Task: "work", Input: large(100_000)})
		return err
	}
	if err := submit(); err != nil { // what it stores beside the job is there from now on
		t.Fatal(err)
	}
	t.Cleanup(func() { standby("") }) // or the store could not be closed
	standby("nobody")
	var before []string
	submitted := make(chan error, 1)
	waits := func() bool { // the server takes in its new setting after a while
		var n int
		if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'forebay'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	for began, waiting := time.Now(), false; !waiting; {
		if time.Since(began) > time.Minute {
			t.Fatal("no commit waits")
		}
		before = s.keys(t)
		go func() { submitted <- submit() }()
		for ended := false; !ended && !waiting; {
			select {
			case err := <-submitted:
				if ended = true; err != nil {
					t.Fatal(err)
				}
			case <-time.After(5 * time.Millisecond):
				waiting = waits() && len(s.keys(t)) > len(before)
			}
		}
	}
	all := s.keys(t)
	for _, key := range all {
		if !slices.Contains(before, key) { // as after its connection was lost
			s.payloads.Doubt(strings.Split(key, "/")[2], key)
		}
	}
	if s.payloads.Doubtful() != 1 {
		t.Fatalf("%d payloads are in doubt", s.payloads.Doubtful())
	}
	if removed, err := s.payloads.RemoveDoubtful(t.Context(), time.Now().Add(100*payload.DoubtfulAfter)); err != nil || removed != 0 || s.payloads.Doubtful() != 1 {
		t.Errorf("while the commit waits: removed %d, %d are in doubt: %v", removed, s.payloads.Doubtful(), err)
	}
	if _, err := s.payloads.Sweep(t.Context()); forebay.CodeOf(err) != forebay.CodeUnavailable {
		t.Errorf("swept while the commit waits: %v", err)
	}
	standby("")
	if err := <-submitted; err != nil {
		t.Fatal(err)
	}
	s.payloads.Doubt("job_none", "t/1/none/input")
	if removed, err := s.payloads.RemoveDoubtful(t.Context(), time.Now().Add(2*payload.DoubtfulAfter)); err != nil || removed != 1 || s.payloads.Doubtful() != 0 {
		t.Errorf("when the wait is over: removed %d, %d are in doubt: %v", removed, s.payloads.Doubtful(), err)
	}
	if after := s.keys(t); !slices.Equal(after, all) {
		t.Errorf("%d of %d payloads are left", len(after), len(all))
	}
}
