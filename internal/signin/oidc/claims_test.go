package oidc

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/signin"
)

// Roles are found where providers put them: in a list, in one text, below objects, and in claims
// whose names have dots.
func TestRolesOfProviders(t *testing.T) {
	for _, c := range []struct {
		claims, name string
		want         []string
	}{
		{`{"roles":["a","b"]}`, "roles", []string{"a", "b"}},
		{`{"roles":"a"}`, "roles", []string{"a"}},
		{`{"roles":["a",1,null,{"b":1}]}`, "roles", []string{"a"}},
		{`{"realm_access":{"roles":["a"]}}`, "realm_access.roles", []string{"a"}},
		{`{"https://example.com/roles":["a"]}`, "https://example.com/roles", []string{"a"}},
		{`{"realm_access":"a"}`, "realm_access.roles", nil},
		{`{"roles":{"a":true}}`, "roles", nil},
		{`{}`, "roles", nil},
	} {
		var said Claims
		if err := json.Unmarshal([]byte(c.claims), &said); err != nil {
			t.Fatal(err)
		}
		if got := said.Texts(c.name); !slices.Equal(got, c.want) {
			t.Errorf("%s of %s: %q; want %q", c.name, c.claims, got, c.want)
		}
	}
}

// Names come from the first claim that has one that can stand in a log.
func TestNamesOfPeople(t *testing.T) {
	for _, c := range []struct{ claims, configured, want string }{
		{`{"preferred_username":"ada","email":"a@x","sub":"1"}`, "", "ada"},
		{`{"preferred_username":"","email":"a@x","sub":"1"}`, "", "a@x"},
		{`{"preferred_username":7,"sub":"1"}`, "", "1"},
		{`{"preferred_username":"a\nb","sub":"1"}`, "", "1"},
		{`{"preferred_username":"ada","name":"Ada"}`, "name", "Ada"},
		{`{"preferred_username":"ada"}`, "name", ""},
		{`{"preferred_username":"` + strings.Repeat("x", maxNameBytes+1) + `","sub":"1"}`, "", "1"},
	} {
		var said Claims
		if err := json.Unmarshal([]byte(c.claims), &said); err != nil {
			t.Fatal(err)
		}
		if got := said.name(c.configured); got != c.want {
			t.Errorf("%q of %s: %q; want %q", c.configured, c.claims, got, c.want)
		}
	}
	one, other := nameOf("ada", "https://a", "1"), nameOf("ada", "https://b", "1")
	if one == other || one != nameOf("ada", "https://a", "1") || len(one) != len("ada#")+idBytes {
		t.Errorf("%q and %q", one, other)
	}
}

// Roles add up their scopes. Their tenants must agree.
func TestGrant(t *testing.T) {
	o := Options{Roles: map[string]Role{
		"view":   {Scopes: []forebay.Scope{forebay.ScopeView}, Tenant: "acme"},
		"submit": {Scopes: []forebay.Scope{forebay.ScopeSubmit, forebay.ScopeView}},
		"other":  {Scopes: []forebay.Scope{forebay.ScopeRead}, Tenant: "other"},
	}}
	for _, c := range []struct {
		roles  string
		scopes []forebay.Scope
		tenant string
		err    error
	}{
		{"view", []forebay.Scope{forebay.ScopeView}, "acme", nil},
		{"unknown view view", []forebay.Scope{forebay.ScopeView}, "acme", nil},
		{"submit", []forebay.Scope{forebay.ScopeSubmit, forebay.ScopeView}, forebay.DefaultTenant, nil},
		{"submit other", []forebay.Scope{forebay.ScopeSubmit, forebay.ScopeView, forebay.ScopeRead}, "other", nil},
		{"view other", nil, "", errTenants},
		{"unknown", nil, "", errNoRole},
		{"", nil, "", errNoRole},
	} {
		var p signin.Person
		_, err := o.grant(&p, strings.Fields(c.roles))
		if !errors.Is(err, c.err) || err == nil && (!slices.Equal(p.Scopes, c.scopes) || p.Tenant != c.tenant) {
			t.Errorf("%s: %+v, %v", c.roles, p, err)
		}
	}
}

// A sign-in is opened by every process with the same secret, for ten minutes, and by no other.
func TestSeal(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	client := func(secret forebay.Secret) *Client {
		c, err := New(Options{Issuer: "https://a", ClientID: "b", ClientSecret: secret, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	made, same, other := client("one"), client("one"), client("two")
	f := flow{State: random(), Nonce: random(), Verifier: "v", Next: "/ui/", BegunAt: now.Unix()}
	sealed, err := made.sealed(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := same.open(sealed); !ok || got != f {
		t.Errorf("opened %+v, %v", got, ok)
	}
	if _, ok := other.open(sealed); ok {
		t.Error("another secret opens it")
	}
	for _, broken := range []string{"", "x", sealed[1:], "A" + sealed[1:], sealed + "AAAA"} {
		if _, ok := same.open(broken); ok && broken != sealed {
			t.Errorf("opened %q", broken)
		}
	}
	now = now.Add(Lifetime)
	if _, ok := same.open(sealed); ok {
		t.Error("it is still open after ten minutes")
	}
}

// What is written of refusals is bounded, and says how much was not written.
func TestShare(t *testing.T) {
	s, now := share{burst: 3, every: time.Minute}, time.Unix(0, 1)
	for i := range 5 {
		if _, ok := s.take(now); ok != (i < 3) {
			t.Errorf("%d: %v", i, ok)
		}
	}
	if silent, ok := s.take(now.Add(time.Minute)); !ok || silent != 2 {
		t.Errorf("after a minute: %d, %v", silent, ok)
	}
	if _, ok := s.take(now.Add(time.Minute)); ok {
		t.Error("one more at once")
	}
}
