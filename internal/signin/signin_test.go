package signin_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/signin"
	"github.com/forebayhq/forebay/internal/stores"
)

func onBoth(t *testing.T, test func(*testing.T, *stores.Stores)) {
	for name, where := range map[string]db.Options{"sqlite": {Path: dbtest.SQLite(t)}, "postgresql": {URL: dbtest.Postgres(t)}} {
		t.Run(name, func(t *testing.T) {
			where.Serve = true
			s, err := stores.Open(t.Context(), where)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.DB.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, s)
		})
	}
}

func signIn(t *testing.T, s *signin.Service, name string) (token string) {
	t.Helper()
	token, err := s.AsPerson(t.Context(), signin.Person{Name: name, Tenant: "acme", Scopes: []forebay.Scope{forebay.ScopeRead, forebay.ScopeOperate}})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func rows(t *testing.T, s *stores.Stores) (n int64) {
	t.Helper()
	err := s.DB.Read(t.Context(), func(c driver.Conn) error {
		_, err := c.Prep("SELECT count(*) FROM signins").One(func(r driver.Row) { n = r.Int(0) })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A person has at most 32 sessions. One more ends a session of his own, and nobody else's.
func TestOldestSessionEndsForANewOne(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stores.Stores) {
		service := signin.New(signin.Options{Store: s.SignIns, People: true})
		other := signIn(t, service, "other")
		var tokens []string
		for range 40 {
			tokens = append(tokens, signIn(t, service, "person"))
		}
		if n := rows(t, s); n != 33 {
			t.Errorf("%d sessions are kept, want 32 and another's", n)
		}
		for name, token := range map[string]string{"another's": other, "the newest": tokens[39]} {
			caller, err := service.Caller(t.Context(), token, true)
			if err != nil || caller.Tenant != "acme" || fmt.Sprint(caller.Scopes) != "[read operate]" {
				t.Errorf("%s: %+v, %v", name, caller, err)
			}
		}
		if err := service.Forget(t.Context(), other, forebay.Caller{Tenant: "acme", KeyID: "other"}); err != nil {
			t.Fatal(err)
		}
		if _, err := service.Caller(t.Context(), other, true); !errors.Is(err, signin.ErrSignedOut) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A sign-in removes sessions that are over.
func TestExpiredSessionsGo(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stores.Stores) {
		short := signin.New(signin.Options{Store: s.SignIns, People: true, Lifetime: time.Millisecond})
		token := signIn(t, short, "person")
		for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
			if _, err := short.Caller(t.Context(), token, true); errors.Is(err, signin.ErrSignedOut) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the session does not end")
			}
		}
		signIn(t, signin.New(signin.Options{Store: s.SignIns, People: true}), "person")
		if n := rows(t, s); n != 1 {
			t.Errorf("%d sessions are kept", n)
		}
	})
}

// What a script fetches by itself is no use of a session: its idle time goes on.
func TestIdleSessionsEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stores.Stores) {
		token := signIn(t, signin.New(signin.Options{Store: s.SignIns, People: true}), "person")
		idle := func() (ms int64) { // since the use that was written
			err := s.DB.Read(t.Context(), func(c driver.Conn) error {
				_, err := c.Prep("SELECT used_at FROM signins").One(func(r driver.Row) { ms = c.Now() - r.Int(0) })
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return ms
		}
		const hour = int64(time.Hour / time.Millisecond)
		for _, c := range []struct {
			idle      int64
			use       bool
			ends, new bool
		}{{hour / 2, false, false, false}, {hour / 2, true, false, true}, {2 * hour, false, true, false}, {2 * hour, true, true, false}} {
			_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *db.Tx) (struct{}, error) {
				return struct{}{}, tx.Prep("UPDATE signins SET used_at = ?").Int(tx.Now - c.idle).Exec()
			})
			if err != nil {
				t.Fatal(err)
			}
			service := signin.New(signin.Options{Store: s.SignIns, People: true, Idle: time.Hour}) // has nothing in memory
			_, err = service.Caller(t.Context(), token, c.use)
			if errors.Is(err, signin.ErrSignedOut) != c.ends || err != nil && !c.ends {
				t.Errorf("%+v: %v", c, err)
			}
			if anew := idle() < c.idle; anew != c.new {
				t.Errorf("%+v: begun anew: %v", c, anew)
			}
		}
	})
}
