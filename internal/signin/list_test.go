package signin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/signin"
	"github.com/forebayhq/forebay/internal/stores"
)

func list(t *testing.T, s *signin.Service, owner string, want int) []forebay.SignIn {
	t.Helper()
	found, err := s.List(t.Context(), owner)
	if err != nil || len(found) != want {
		t.Fatalf("%d sessions of %q, want %d: %+v, %v", len(found), owner, want, found, err)
	}
	return found
}

// Sessions that count are listed and ended, one or all of an owner. The audit log says who ended
// whose.
func TestSessionsAreListedAndEnded(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stores.Stores) {
		service := signin.New(signin.Options{Store: s.SignIns, People: true})
		list(t, service, "", 0)
		ada, bob := signIn(t, service, "ada"), signIn(t, service, "bob")
		signIn(t, service, "ada")
		all := list(t, service, "", 3)
		mine := list(t, service, "person:ada", 2)
		list(t, service, "ada", 0)
		for _, one := range append(all, mine...) {
			if one.Tenant != "acme" || len(one.Scopes) != 2 || one.CreatedAt.IsZero() || one.UsedAt.IsZero() || !one.ExpiresAt.After(one.CreatedAt) || strings.Contains(ada+bob, one.ID) {
				t.Errorf("a session is %+v", one)
			}
		}
		if _, err := service.List(t.Context(), strings.Repeat("x", 1025)); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("a long owner: %v", err)
		}

		// One that is in the memory of the process ends at once.
		caller := func(token string) error {
			_, err := service.Caller(t.Context(), token, false)
			return err
		}
		if err := caller(bob); err != nil {
			t.Fatal(err)
		}
		bobs := list(t, service, "person:bob", 1)[0]
		for _, id := range []string{"", "signin_", strings.ToUpper(bobs.ID), bobs.ID + "00", "signin_" + strings.Repeat("0", 32), strings.TrimPrefix(bobs.ID, "signin_")} {
			if err := service.End(t.Context(), id, "key_1"); !errors.Is(err, forebay.ErrNotFound) {
				t.Errorf("the end of %q: %v", id, err)
			}
		}
		if err := service.End(t.Context(), bobs.ID, "key_1"); err != nil {
			t.Fatal(err)
		}
		if err := caller(bob); !errors.Is(err, signin.ErrSignedOut) {
			t.Errorf("after the end: %v", err)
		}
		if err := service.End(t.Context(), bobs.ID, "key_1"); !errors.Is(err, forebay.ErrNotFound) {
			t.Errorf("the second end: %v", err)
		}
		if err := caller(ada); err != nil {
			t.Errorf("another's session: %v", err)
		}
		for _, want := range []int{2, 0} {
			if ended, err := service.EndAll(t.Context(), "person:ada", "key_1"); ended != want || err != nil {
				t.Errorf("%d sessions ended, want %d: %v", ended, want, err)
			}
		}
		if err := caller(ada); !errors.Is(err, signin.ErrSignedOut) {
			t.Errorf("after the end of all: %v", err)
		}
		if _, err := service.EndAll(t.Context(), "", "key_1"); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("the end of nobody's: %v", err)
		}
		entries, _, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{Action: "end-sign-in"}, 0, 10)
		if err != nil || len(entries) != 2 || entries[0].Target != "person:ada" || entries[1].Target != "person:bob" || entries[0].Actor != "key_1" || entries[0].Tenant != "acme" {
			t.Errorf("the audit log has %+v, %v", entries, err)
		}
	})
}

// Those that nobody has used for too long, or of people where only keys sign in, are not listed.
func TestOnlySessionsThatCountAreListed(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stores.Stores) {
		service := signin.New(signin.Options{Store: s.SignIns, People: true, Idle: time.Hour})
		signIn(t, service, "ada")
		list(t, service, "", 1)
		list(t, signin.New(signin.Options{Store: s.SignIns}), "", 0)
		_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *db.Tx) (struct{}, error) {
			return struct{}{}, tx.Prep("UPDATE signins SET used_at = ?").Int(tx.Now - 2*time.Hour.Milliseconds()).Exec()
		})
		if err != nil {
			t.Fatal(err)
		}
		list(t, service, "", 0)
		list(t, service, "person:ada", 0)
	})
}
