package signin

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// noKeys knows no key.
type noKeys struct{}

func (noKeys) Authenticate(context.Context, string) (forebay.Caller, bool, error) {
	return forebay.Caller{}, false, ErrSignedOut
}

func (noKeys) CallerOf(context.Context, string) (forebay.Caller, error) {
	return forebay.Caller{}, ErrSignedOut
}

// A session of a person has what the person had at sign-in, and names the person as no key can
// be named. Where no people sign in it does not count.
func TestSessionsOfPeople(t *testing.T) {
	for name, where := range map[string]db.Options{
		"sqlite": {Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true}, "postgres": {URL: dbtest.Postgres(t), Serve: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queues := &queue.Store{}
			store := &Store{Store: queues}
			log := &audit.Store{}
			d, err := db.Open(t.Context(), where, queues, log, store)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			people := New(Options{Store: store, Keys: noKeys{}, Lifetime: time.Hour, People: true})
			keysOnly := New(Options{Store: store, Keys: noKeys{}, Lifetime: time.Hour})
			ada := Person{Name: "key_1", Tenant: "acme", Scopes: []forebay.Scope{forebay.ScopeView, forebay.ScopeSubmit}, Detail: "{}"}
			token, err := people.AsPerson(t.Context(), ada)
			if err != nil {
				t.Fatal(err)
			}
			caller, err := people.Caller(t.Context(), token, true)
			if err != nil || caller.KeyID != "person:key_1" || caller.Tenant != "acme" || !caller.IsPerson() || !caller.May(forebay.ScopeView) || caller.May(forebay.ScopeOperate) {
				t.Errorf("the caller is %+v, %v", caller, err)
			}
			if left := time.Until(caller.ExpiresAt); left <= 0 || left > time.Hour {
				t.Errorf("it expires in %s", left)
			}
			if _, err := keysOnly.Caller(t.Context(), token, true); forebay.CodeOf(err) != forebay.CodeUnauthorized {
				t.Errorf("without people: %v", err)
			}
			if _, err := keysOnly.AsPerson(t.Context(), ada); forebay.CodeOf(err) != forebay.CodeUnauthorized {
				t.Errorf("without people: %v", err)
			}
			if _, err := people.AsPerson(t.Context(), Person{Name: "bob", Tenant: "acme", Scopes: []forebay.Scope{forebay.ScopeSubmit}}); forebay.CodeOf(err) != forebay.CodeForbidden {
				t.Errorf("without the right to read: %v", err)
			}
			if err := people.Forget(t.Context(), token, caller); err != nil {
				t.Fatal(err)
			}
			if _, err := people.Caller(t.Context(), token, true); forebay.CodeOf(err) != forebay.CodeUnauthorized {
				t.Errorf("after the sign-out: %v", err)
			}
			entries, _, err := log.Entries(t.Context(), forebay.AuditFilter{Actor: "person:key_1"}, 0, 10)
			if err != nil || len(entries) != 2 || entries[0].Action != "sign-out" || entries[1].Action != "sign-in" || entries[1].Detail != "{}" {
				t.Errorf("the audit log has %+v, %v", entries, err)
			}

			// One person's sessions are bounded: the oldest ends for a new one.
			live, tokens := 0, make([]string, maxPerKey+1)
			for i := range tokens {
				if tokens[i], err = people.AsPerson(t.Context(), ada); err != nil {
					t.Fatal(err)
				}
			}
			for _, token := range tokens {
				if _, err := people.Caller(t.Context(), token, true); err == nil {
					live++
				}
			}
			if live != maxPerKey {
				t.Errorf("%d sessions of one person count", live)
			}
		})
	}
}
