package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

func macOf(key string, message []byte) []byte {
	h := hmac.New(sha256.New, []byte(key))
	h.Write(message)
	return h.Sum(nil)
}

// What is stored of a key signs as the key does, whatever the lengths of key and message.
func TestSigningStateSignsAsTheKey(t *testing.T) {
	same := func(key, message []byte) bool {
		state, err := signingState(string(key))
		if err != nil || len(state) != signingBytes {
			t.Fatal(len(state), err)
		}
		got, err := signed(state, message)
		return err == nil && hmac.Equal(got, macOf(string(key), message))
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
	for _, length := range []int{0, 1, 35, 63, 64, 65, 1000} {
		if !same([]byte(strings.Repeat("k", length)), []byte(strings.Repeat("m", length))) {
			t.Errorf("a key of %d bytes", length)
		}
	}
	if _, err := signed(make([]byte, signingBytes-1), nil); err == nil {
		t.Error("a state that is too short signs")
	}
}

// The database does not hold the key, only its hash and the states, on both engines.
func TestTheKeyIsNotStored(t *testing.T) {
	key := "fb_" + strings.Repeat("a", 32)
	state, err := signingState(key)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(state), key[:8]) || hmac.Equal(state[:chainBytes], state[chainBytes:]) {
		t.Errorf("the state %x", state)
	}
}

func TestSigned(t *testing.T) {
	message := []byte("sb%3a%2f%2fhost%2forders\n1800000000")
	for name, where := range map[string]db.Options{
		"sqlite": {Path: dbtest.SQLite(t)}, "postgres": {URL: dbtest.Postgres(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := twoServices(t, where)
			create := func(scopes []forebay.Scope, entities ...string) forebay.APIKey {
				key, err := s.Create(t.Context(), "t", scopes, nil, forebay.Budget{}, "test", entities...)
				if err != nil {
					t.Fatal(err)
				}
				return key
			}
			signs := create([]forebay.Scope{forebay.ScopeSend, forebay.ScopeRead})
			bound := create([]forebay.Scope{forebay.ScopeListen}, "Orders", "orders", "news/SUBSCRIPTIONS/all")
			cannot := create([]forebay.Scope{forebay.ScopeSubmit, forebay.ScopeAdmin})
			if !signs.SignsTokens || !bound.SignsTokens || cannot.SignsTokens {
				t.Errorf("signs tokens: %t, %t, %t", signs.SignsTokens, bound.SignsTokens, cannot.SignsTokens)
			}
			caller, err := s.Signed(t.Context(), signs.ID, message, macOf(signs.Key, message))
			if err != nil || caller.KeyID != signs.ID || caller.Tenant != "t" || !caller.May(forebay.ScopeSend) || len(caller.Entities) != 0 {
				t.Errorf("%+v, %v", caller, err)
			}
			caller, err = other.Signed(t.Context(), bound.ID, message, macOf(bound.Key, message))
			if err != nil || !slices.Equal(caller.Entities, []string{"Orders", "news/subscriptions/all"}) {
				t.Errorf("%+v, %v", caller, err)
			}
			for what, c := range map[string]struct {
				id      string
				message []byte
				mac     []byte
				says    string
			}{
				"another message":          {signs.ID, message[1:], macOf(signs.Key, message), "not signed with that key"},
				"another key":              {signs.ID, message, macOf(bound.Key, message), "not signed with that key"},
				"no signature":             {signs.ID, message, nil, "not signed with that key"},
				"a short one":              {signs.ID, message, macOf(signs.Key, message)[:31], "not signed with that key"},
				"an unknown key":           {"key_0", message, macOf(signs.Key, message), "not signed with that key"},
				"no key":                   {"", message, macOf("", message), "not signed with that key"},
				"a key that does not sign": {cannot.ID, message, macOf(cannot.Key, message), "make a new one"},
			} {
				_, err := s.Signed(t.Context(), c.id, c.message, c.mac)
				if forebay.CodeOf(err) != forebay.CodeUnauthorized || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v", what, err)
				}
			}
			// The state that stands for a key that does not exist signs nothing.
			forged, err := signed(noState, message)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"key_0", cannot.ID} {
				if _, err := s.Signed(t.Context(), id, message, forged); forebay.CodeOf(err) != forebay.CodeUnauthorized {
					t.Errorf("forged for %s: %v", id, err)
				}
			}
			keys, err := other.List(t.Context())
			if err != nil || len(keys) != 3 {
				t.Fatal(len(keys), err)
			}
			for _, key := range keys {
				if key.SignsTokens != (key.ID != cannot.ID) || key.Key != "" || (len(key.Entities) == 2) != (key.ID == bound.ID) {
					t.Errorf("listed %+v", key)
				}
			}
			if _, err := s.Revoke(t.Context(), signs.ID, "test"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Signed(t.Context(), signs.ID, message, macOf(signs.Key, message)); forebay.CodeOf(err) != forebay.CodeUnauthorized {
				t.Errorf("the revoked key: %v", err)
			}
		})
	}
}

// A key that was made by an earlier version has no state.
func TestKeyOfAnEarlierVersionSaysToMakeANewOne(t *testing.T) {
	s, _ := twoServices(t, db.Options{Path: dbtest.SQLite(t)})
	key, err := s.Create(t.Context(), "t", []forebay.Scope{forebay.ScopeSend}, nil, forebay.Budget{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Transact(t.Context(), s.store.Writer, db.Op{Stage: db.StageChange}, func(tx *db.Tx) (struct{}, error) {
		return struct{}{}, tx.Prep("UPDATE api_keys SET hmac_state = NULL WHERE id = ?").Text(key.ID).Exec()
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Signed(t.Context(), key.ID, nil, macOf(key.Key, nil))
	if forebay.CodeOf(err) != forebay.CodeUnauthorized || !strings.Contains(err.Error(), "make a new one with: forebay keys create") {
		t.Error(err)
	}
}

func TestEntitiesOfAKey(t *testing.T) {
	s, _ := twoServices(t, db.Options{Path: dbtest.SQLite(t)})
	send := []forebay.Scope{forebay.ScopeSend}
	many := make([]string, maxEntities+1)
	for i := range many {
		many[i] = "q" + strings.Repeat("a", i)
	}
	for what, c := range map[string]struct {
		scopes   []forebay.Scope
		entities []string
		field    string
	}{
		"one":                    {send, []string{"orders"}, ""},
		"a subscription":         {[]forebay.Scope{forebay.ScopeListen, forebay.ScopeManage}, []string{"a/b/subscriptions/c"}, ""},
		"as many as may be":      {send, many[1:], ""},
		"too many":               {send, many, "entities"},
		"another scope":          {[]forebay.Scope{forebay.ScopeSend, forebay.ScopeRead}, []string{"orders"}, "entities"},
		"admin":                  {[]forebay.Scope{forebay.ScopeAdmin}, []string{"orders"}, "entities"},
		"a subqueue":             {send, []string{"orders/$deadletterqueue"}, "entities"},
		"nothing":                {send, []string{""}, "entities"},
		"a space":                {send, []string{"a b"}, "entities"},
		"dots":                   {send, []string{"a/../b"}, "entities"},
		"no subscription's name": {send, []string{"a/subscriptions/"}, "entities"},
		"a long one":             {send, []string{strings.Repeat("a", 261)}, "entities"},
	} {
		_, err := s.Create(t.Context(), "t", c.scopes, nil, forebay.Budget{}, "test", c.entities...)
		if c.field == "" && err != nil || c.field != "" && forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What a token has opened ends with its key, also when another process ends it.
func TestSignedEndsWithItsKey(t *testing.T) {
	s, other := twoServices(t, db.Options{URL: dbtest.Postgres(t)})
	key, err := s.Create(t.Context(), "t", []forebay.Scope{forebay.ScopeSend}, nil, forebay.Budget{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	caller, err := s.Signed(t.Context(), key.ID, nil, macOf(key.Key, nil))
	if err != nil {
		t.Fatal(err)
	}
	held, release := s.Hold(t.Context(), caller)
	defer release()
	begun := time.Now()
	if _, err := other.Revoke(t.Context(), key.ID, "test"); err != nil {
		t.Fatal(err)
	}
	endsUnauthorized(t, "the connection", held)
	t.Logf("it ended after %v", time.Since(begun))
}
