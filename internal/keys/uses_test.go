package keys

import (
	"errors"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

func lastUse(t *testing.T, s *Service, id string) *time.Time {
	t.Helper()
	keys, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if key.ID == id {
			return key.LastUsedAt
		}
	}
	t.Fatalf("no key %s", id)
	return nil
}

// A use is written by itself, and a second one within the minute is not. Another process that
// noted less than a minute later leaves the row alone.
func TestLastUseIsWrittenOnceAMinute(t *testing.T) {
	for name, where := range map[string]db.Options{
		"sqlite": {Path: dbtest.SQLite(t)}, "postgres": {URL: dbtest.Postgres(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serving, other := twoServices(t, where)
			key, unused := newTestKey(t, serving), newTestKey(t, serving)
			if _, _, err := serving.Authenticate(t.Context(), key.Key); err != nil {
				t.Fatal(err)
			}
			deadline := time.Now().Add(time.Minute)
			for lastUse(t, other, key.ID) == nil {
				if time.Now().After(deadline) {
					t.Fatal("the use is not written after a minute")
				}
				<-time.After(20 * time.Millisecond)
			}
			first := *lastUse(t, other, key.ID)
			if lastUse(t, other, unused.ID) != nil {
				t.Error("a key that was not used has a last use")
			}
			for _, use := range []struct {
				after time.Duration
				want  time.Duration
			}{{59 * time.Second, 0}, {time.Minute, time.Minute}, {-time.Hour, time.Minute}, {3 * time.Minute, 3 * time.Minute}} {
				if err := serving.store.NoteUses(t.Context(), []Use{{key.ID, first.Add(use.after)}}); err != nil {
					t.Fatal(err)
				}
				if got := lastUse(t, serving, key.ID).Sub(first); got != use.want {
					t.Errorf("a use %v later: the last is %v later, want %v", use.after, got, use.want)
				}
			}
			if _, _, err := serving.Authenticate(t.Context(), "fb_wrong"); forebay.CodeOf(err) != forebay.CodeUnauthorized {
				t.Error(err)
			}
			if err := serving.store.Close(); err != nil {
				t.Fatal(err)
			}
			if err := serving.store.NoteUses(t.Context(), []Use{{key.ID, first}}); !errors.Is(err, db.ErrClosed) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// A burst of uses is one write, and what a write could not do is done by the next.
func TestUsesAreGathered(t *testing.T) {
	var u uses
	writes := 0
	at := time.UnixMilli(1e12)
	for i := range 1000 {
		u.note("key_a", at.Add(time.Duration(i)), func() {})
		u.note("key_b", at, func() {})
	}
	taken := u.take()
	if len(taken) != 2 || taken[0] != (Use{"key_a", at.Add(999)}) || taken[1] != (Use{"key_b", at}) {
		t.Errorf("%v", taken)
	}
	u.note("key_b", at.Add(time.Second), func() { writes++ })
	u.done(taken, func() { writes++ })
	taken = u.take()
	if len(taken) != 2 || taken[0].At != at.Add(999) || taken[1].At != at.Add(time.Second) {
		t.Errorf("after a write that failed: %v", taken)
	}
	if until := time.Until(u.written.Add(usesEvery)); until < 30*time.Second || writes != 0 {
		t.Errorf("the next write is due in %v, %d were made", until, writes)
	}
}
