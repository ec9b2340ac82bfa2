package signin_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/signin"
	"github.com/forebayhq/forebay/internal/stores"
)

func list(t *testing.T, s *signin.Service, owner string, want int) []forebay.SignIn {
	t.Helper()
	found, more, err := s.List(t.Context(), owner)
	if err != nil || len(found) != want || more {
		t.Fatalf("%d sessions of %q, want %d (more: %v): %+v, %v", len(found), owner, want, more, found, err)
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
		if _, _, err := service.List(t.Context(), strings.Repeat("x", 1025)); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
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

// insert stores n sessions of a key, or of people if it has no id. They were used so long ago, and
// last for so long.
func insert(t *testing.T, s *stores.Stores, keyID string, n int, idle, lasts time.Duration) {
	t.Helper()
	_, err := db.Transact(t.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *db.Tx) (struct{}, error) {
		for i := range n {
			name, tenant := "", ""
			if keyID == "" {
				name, tenant = fmt.Sprint("person", i), "acme"
			}
			hash := sha256.Sum256(fmt.Append(nil, keyID, idle, lasts, i))
			err := tx.Prep("INSERT INTO signins (hash, owner, key_id, name, tenant, scopes, created_at, used_at, expires_at) VALUES (?, ?, ?, ?, ?, 'read', ?, ?, ?)").
				Blob(hash[:]).Text(keyID + name).TextOrNull(keyID).Text(name).Text(tenant).Int(tx.Now - idle.Milliseconds()).Int(tx.Now - idle.Milliseconds()).Int(tx.Now + lasts.Milliseconds()).Exec()
			if err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Sessions that do not count take no place in a list from those that do. A list that is cut says
// so.
func TestSessionsThatCountAreNotCutForOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stores.Stores) {
		known, revoked, key := twoKeys(t, s)
		insert(t, s, "", forebay.MaxSignIns, 2*time.Hour, 10*time.Hour) // nobody uses them
		insert(t, s, revoked, forebay.MaxSignIns, 0, 9*time.Hour)
		service := signin.New(signin.Options{Store: s.SignIns, Keys: known, People: true, Idle: time.Hour})
		list(t, service, "", 0)
		insert(t, s, "", 3, 0, 8*time.Hour)
		insert(t, s, key, 2, 0, 7*time.Hour)
		list(t, service, "", 5)
		list(t, signin.New(signin.Options{Store: s.SignIns, Keys: known, Idle: time.Hour}), "", 2)
		insert(t, s, "", forebay.MaxSignIns-5, 0, 6*time.Hour)
		list(t, service, "", forebay.MaxSignIns)
		insert(t, s, "", 1, 0, 5*time.Hour)
		if found, more, err := service.List(t.Context(), ""); len(found) != forebay.MaxSignIns || !more || err != nil {
			t.Errorf("%d sessions, more: %v, %v", len(found), more, err)
		}
	})
}

// twoKeys makes two keys of the tenant globex, and revokes the first.
func twoKeys(t *testing.T, s *stores.Stores) (service *keys.Service, revoked, other string) {
	t.Helper()
	service = keys.NewService(s.Keys, nil)
	var ids []string
	for range 2 {
		made, err := service.Create(t.Context(), "globex", []forebay.Scope{forebay.ScopeRead}, nil, forebay.Budget{}, "key_9")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made.ID)
	}
	if _, err := service.Revoke(t.Context(), ids[0], "key_9"); err != nil {
		t.Fatal(err)
	}
	return service, ids[0], ids[1]
}

// The audit log has the end of sessions of a key under the key's tenant, also of a revoked one.
func TestEndOfSessionsOfAnEndedKey(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stores.Stores) {
		known, revoked, _ := twoKeys(t, s)
		service := signin.New(signin.Options{Store: s.SignIns, Keys: known})
		insert(t, s, revoked, 2, 0, time.Hour)
		hash := sha256.Sum256(fmt.Append(nil, revoked, time.Duration(0), time.Hour, 0))
		if err := service.End(t.Context(), fmt.Sprintf("signin_%x", hash[:16]), "key_9"); err != nil {
			t.Fatal(err)
		}
		if ended, err := service.EndAll(t.Context(), revoked, "key_9"); ended != 1 || err != nil {
			t.Errorf("%d sessions ended: %v", ended, err)
		}
		entries, _, err := s.Audit.Entries(t.Context(), forebay.AuditFilter{Action: "end-sign-in"}, 0, 10)
		if err != nil || len(entries) != 2 || entries[0].Tenant != "globex" || entries[1].Tenant != "globex" || entries[0].Target != revoked {
			t.Errorf("the audit log has %+v, %v", entries, err)
		}
	})
}
