package keys

import (
	"context"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// twoServices are of two processes that share a database, as far as SQLite lets them: there the
// second is an administrator's.
func twoServices(t *testing.T, where db.Options) (serving, other *Service) {
	t.Helper()
	open := func(o db.Options) *Service {
		queues := &queue.Store{}
		store := &Store{Store: queues}
		admissions := &admission.Store{Store: queues}
		d, err := db.Open(t.Context(), o, queues, &audit.Store{}, bus.NewStore(queues), admissions, noJobs{}, store)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return NewService(store, nil)
	}
	where.Serve = true
	serving = open(where)
	where.Serve = where.URL != ""
	return serving, open(where)
}

// noJobs is a domain that holds no jobs.
type noJobs struct{}

func (noJobs) Attach(*db.DB)                                           {}
func (noJobs) Join(w *db.Writer)                                       { admission.Key.In(w).Jobs = noJobs{} }
func (noJobs) Unblock(string, int64)                                   {}
func (noJobs) MayGo(map[int64]int64)                                   {}
func (noJobs) Released(*db.Tx, queue.Subqueue, int64, int64, ...int64) {}

func newTestKey(t *testing.T, s *Service) forebay.APIKey {
	t.Helper()
	key, err := s.Create(t.Context(), "t", []forebay.Scope{forebay.ScopeRead}, nil, forebay.Budget{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// endsUnauthorized waits until a context has ended because of its key.
func endsUnauthorized(t *testing.T, what string, held context.Context) {
	t.Helper()
	select {
	case <-held.Done():
	case <-time.After(time.Minute):
		t.Fatalf("%s is still open after a minute", what)
	}
	if cause := context.Cause(held); forebay.CodeOf(cause) != forebay.CodeUnauthorized {
		t.Errorf("%s ended because of %v", what, cause)
	}
}

// What is open under a key ends when another process revokes it, and the key is not taken from
// memory any more.
func TestRevocationElsewhereEndsWhatIsOpen(t *testing.T) {
	for name, where := range map[string]db.Options{
		"sqlite": {Path: dbtest.SQLite(t)}, "postgres": {URL: dbtest.Postgres(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serving, other := twoServices(t, where)
			revoked, kept := newTestKey(t, serving), newTestKey(t, serving)
			open := func(key forebay.APIKey) (context.Context, func()) {
				caller, _, err := serving.Authenticate(t.Context(), key.Key)
				if err != nil {
					t.Fatal(err)
				}
				return serving.Hold(t.Context(), caller)
			}
			first, release := open(revoked)
			defer release()
			second, releaseSecond := open(revoked)
			defer releaseSecond()
			others, releaseOthers := open(kept)
			defer releaseOthers()
			if _, err := other.Revoke(t.Context(), revoked.ID, "test"); err != nil {
				t.Fatal(err)
			}
			endsUnauthorized(t, "the first", first)
			endsUnauthorized(t, "the second", second)
			if _, _, err := serving.Authenticate(t.Context(), revoked.Key); forebay.CodeOf(err) != forebay.CodeUnauthorized {
				t.Errorf("the revoked key was answered with %v", err)
			}
			if err := others.Err(); err != nil {
				t.Errorf("what is open under another key ended: %v", context.Cause(others))
			}
		})
	}
}

// What is open under a key ends also if the key was revoked while this process could not read the
// database, however long that took.
func TestRevocationDuringALongOutageEndsWhatIsOpen(t *testing.T) {
	for name, where := range map[string]db.Options{
		"sqlite": {Path: dbtest.SQLite(t)}, "postgres": {URL: dbtest.Postgres(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serving, other := twoServices(t, where)
			revoked := newTestKey(t, serving)
			held, end := context.WithCancelCause(t.Context())
			defer end(nil)
			serving.open.add(revoked.ID, &hold{end}) // without reads by the clock
			unreadable, cancel := context.WithCancel(t.Context())
			cancel()
			serving.endRevoked(unreadable)
			serving.open.known = serving.open.known.Add(-2 * revokedWithin)
			if _, err := other.Revoke(t.Context(), revoked.ID, "test"); err != nil {
				t.Fatal(err)
			}
			_, err := db.Transact(t.Context(), other.store.Writer, db.Op{Stage: db.StageChange}, func(tx *db.Tx) (struct{}, error) {
				long := tx.Now - (revokedWithin + revokedWithin/2).Milliseconds()
				return struct{}{}, tx.Prep("UPDATE api_keys SET revoked_at = ? WHERE id = ?").Int(long).Text(revoked.ID).Exec()
			})
			if err != nil {
				t.Fatal(err)
			}
			serving.endRevoked(t.Context())
			endsUnauthorized(t, "what was open", held)
			if since := serving.open.since(serving.store.Now()); since.Before(serving.store.Now().Add(-revokedWithin - time.Minute)) {
				t.Errorf("the next read begins at %v again", since)
			}
		})
	}
}

// What was opened while there was no key ends with the first key.
func TestFirstKeyEndsWhatIsOpenWithoutOne(t *testing.T) {
	serving, other := twoServices(t, db.Options{Path: dbtest.SQLite(t)})
	caller, open, err := serving.Authenticate(t.Context(), "")
	if err != nil || !open {
		t.Fatalf("open %t, %v", open, err)
	}
	held, release := serving.Hold(t.Context(), caller)
	defer release()
	newTestKey(t, other)
	endsUnauthorized(t, "what needed no key", held)
}

// Whoever makes the first key learns it, though what else was opened without one ends.
func TestWhoMakesTheFirstKeyGoesOn(t *testing.T) {
	serving, _ := twoServices(t, db.Options{Path: dbtest.SQLite(t)})
	caller, _, err := serving.Authenticate(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	making, release := serving.Hold(t.Context(), caller)
	defer release()
	other, releaseOther := serving.Hold(t.Context(), caller)
	defer releaseOther()
	if key, err := serving.Create(making, "t", []forebay.Scope{forebay.ScopeRead}, nil, forebay.Budget{}, "test"); err != nil || key.Key == "" {
		t.Fatal(err)
	}
	endsUnauthorized(t, "what else needed no key", other)
	if err := making.Err(); err != nil {
		t.Errorf("making the key ended: %v", context.Cause(making))
	}
}

func TestExpiryEndsWhatIsOpen(t *testing.T) {
	serving, _ := twoServices(t, db.Options{Path: dbtest.SQLite(t)})
	expires := serving.store.DB.Now().Add(time.Hour)
	key, err := serving.Create(t.Context(), "t", []forebay.Scope{forebay.ScopeRead}, &expires, forebay.Budget{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	caller, _, err := serving.Authenticate(t.Context(), key.Key)
	if err != nil || time.Until(caller.ExpiresAt) < 30*time.Minute || time.Until(caller.ExpiresAt) > time.Hour+time.Minute {
		t.Fatalf("the key expires at %v, %v", caller.ExpiresAt, err)
	}
	caller.ExpiresAt = time.Now().Add(10 * time.Millisecond)
	held, release := serving.Hold(t.Context(), caller)
	defer release()
	endsUnauthorized(t, "what the key has opened", held)
}

// What was closed is forgotten, and nothing is looked for any more.
func TestReleasedIsForgotten(t *testing.T) {
	serving, _ := twoServices(t, db.Options{Path: dbtest.SQLite(t)})
	var releases []func()
	for range 3 {
		_, release := serving.Hold(t.Context(), forebay.Caller{KeyID: "k", ExpiresAt: time.Now().Add(time.Hour)})
		releases = append(releases, release)
	}
	for _, release := range releases {
		release()
	}
	serving.poll()
	serving.open.mu.Lock()
	defer serving.open.mu.Unlock()
	if len(serving.open.byKey) != 0 || serving.open.next != nil {
		t.Errorf("still open: %v; the next look is taken: %t", serving.open.byKey, serving.open.next != nil)
	}
}

// What a person without a key has opened ends with the session, and not before because of keys
// that are made or revoked.
func TestWhatAPersonOpens(t *testing.T) {
	serving, other := twoServices(t, db.Options{Path: dbtest.SQLite(t)})
	person := forebay.Caller{KeyID: forebay.PersonPrefix + "ada#abcdefghij", Tenant: "t", Scopes: []forebay.Scope{forebay.ScopeRead}}
	held, release := serving.Hold(t.Context(), person)
	defer release()
	key := newTestKey(t, serving) // a first key ends what was opened without one
	caller, _, err := serving.Authenticate(t.Context(), key.Key)
	if err != nil {
		t.Fatal(err)
	}
	underKey, releaseKey := serving.Hold(t.Context(), caller)
	defer releaseKey()
	if _, err := other.Revoke(t.Context(), key.ID, "test"); err != nil {
		t.Fatal(err)
	}
	endsUnauthorized(t, "what was opened under the key", underKey)
	if err := held.Err(); err != nil {
		t.Errorf("what the person opened ended too: %v", err)
	}
	person.ExpiresAt = time.Now().Add(10 * time.Millisecond)
	short, releaseShort := serving.Hold(t.Context(), person)
	defer releaseShort()
	endsUnauthorized(t, "what the person opened", short)
}
