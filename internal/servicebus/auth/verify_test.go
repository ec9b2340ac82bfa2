package auth

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/limits"
)

func TestPlain(t *testing.T) {
	k := newKeys(t)
	key := newKey(t, k, "acme", []forebay.Scope{forebay.ScopeSubmit})
	other := newKey(t, k, "other", sendListen)
	peer := newVerifier(k).From(elsewhere)
	grant, err := peer.Plain(t.Context(), key.ID, key.Key)
	if err != nil || grant.Caller.Tenant != "acme" || !grant.May(forebay.ScopeSend, "orders") || grant.May(forebay.ScopeListen, "orders") || !grant.Expires.IsZero() {
		t.Errorf("%+v, %v", grant, err)
	}
	for what, c := range map[string][2]string{
		"another name":  {other.ID, key.Key},
		"another key":   {key.ID, other.Key},
		"no name":       {"", key.Key},
		"no key":        {key.ID, ""},
		"swapped":       {key.Key, key.ID},
		"a wrong key":   {key.ID, "fb_wrong"},
		"a control":     {key.ID, key.Key + "\x00"},
		"a longer name": {key.ID + " ", key.Key},
	} {
		_, err := peer.Plain(t.Context(), c[0], c[1])
		wantRefused(t, what, err, "are not those of an API key")
	}
}

// The header of a request to manage entities has a token of any kind.
func TestHeader(t *testing.T) {
	k := newKeys(t)
	key := newKey(t, k, "acme", []forebay.Scope{forebay.ScopeManage}, "orders")
	peer := newVerifier(k).From(elsewhere)
	for _, header := range []string{tokenOf(key, "https://h/orders"), "Bearer " + key.Key, key.Key} {
		grant, err := peer.Header(t.Context(), header, "https://h/orders")
		if err != nil || !grant.May(forebay.ScopeManage, "orders") || grant.May(forebay.ScopeManage, "news") {
			t.Errorf("%.10s: %+v, %v", header, grant, err)
		}
	}
	for header, says := range map[string]string{
		"":                  "takes no JSON Web Tokens",
		"Basic a":           "must have a shared access signature",
		"Bearer fb_unknown": "API key is missing",
		"Bearer a.b.c":      "takes no JSON Web Tokens",
		"a.b.c":             "takes no JSON Web Tokens",
	} {
		_, err := peer.Header(t.Context(), header, "https://h/orders")
		wantRefused(t, header, err, says)
	}
}

// A server without keys takes any token of its own machine, and none from elsewhere.
func TestWithoutKeys(t *testing.T) {
	k := newKeys(t)
	v := newVerifier(k)
	emulator := tokenOf(forebay.APIKey{ID: "RootManageSharedAccessKey", Key: "SAS_KEY_VALUE"}, "sb://localhost/orders")
	ways := map[string]func(Peer) (Grant, error){
		"sas":   func(p Peer) (Grant, error) { return p.SAS(t.Context(), emulator, "sb://localhost/orders") },
		"plain": func(p Peer) (Grant, error) { return p.Plain(t.Context(), "RootManageSharedAccessKey", "SAS_KEY_VALUE") },
		"jwt":   func(p Peer) (Grant, error) { return p.JWT(t.Context(), "a.b.c") },
	}
	for _, address := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.2"} {
		for what, ask := range ways {
			grant, err := ask(v.From(netip.MustParseAddr(address)))
			if err != nil || grant.Caller.Tenant != forebay.DefaultTenant || grant.Caller.KeyID != "" || !grant.May(forebay.ScopeManage, "orders") {
				t.Errorf("%s from %s: %+v, %v", what, address, grant, err)
			}
		}
	}
	for what, ask := range ways {
		_, err := ask(v.From(elsewhere))
		wantRefused(t, what+" from elsewhere", err, "answers only its own machine")
		_, err = ask(New(Options{Keys: k, Closed: true}).From(loopback))
		wantRefused(t, what+" behind a proxy", err, "answers only its own machine")
	}
	_, err := v.From(loopback).SAS(t.Context(), emulator+"&sr=x", "sb://localhost/orders")
	wantRefused(t, "a malformed token", err, "field sr twice")
	grant, err := ways["sas"](v.From(loopback))
	if err != nil {
		t.Fatal(err)
	}
	held, release := v.Hold(t.Context(), grant)
	defer release()
	newKey(t, k, "acme", sendListen)
	wantEnded(t, held)
	for what, ask := range ways {
		if _, err := ask(v.From(loopback)); forebay.CodeOf(err) != forebay.CodeUnauthorized {
			t.Errorf("%s after the first key: %v", what, err)
		}
	}
}

// wantEnded waits until a context has ended because of a key or a token.
func wantEnded(t *testing.T, held context.Context) {
	t.Helper()
	select {
	case <-held.Done():
	case <-time.After(time.Minute):
		t.Fatal("it has not ended after a minute")
	}
	if cause := context.Cause(held); forebay.CodeOf(cause) != forebay.CodeUnauthorized {
		t.Errorf("it ended because of %v", cause)
	}
}

func TestGrantsEndWithTheirKey(t *testing.T) {
	k := newKeys(t)
	v := newVerifier(k)
	key, kept := newKey(t, k, "acme", sendListen), newKey(t, k, "acme", sendListen)
	hold := func(key forebay.APIKey, change func(*Grant)) context.Context {
		grant, err := v.From(elsewhere).SAS(t.Context(), tokenOf(key, "sb://h/orders"), "sb://h/orders")
		if err != nil {
			t.Fatal(err)
		}
		change(&grant)
		held, release := v.Hold(t.Context(), grant)
		t.Cleanup(release)
		return held
	}
	same := func(*Grant) {}
	revoked, others := hold(key, same), hold(kept, same)
	expired := hold(kept, func(g *Grant) { g.Expires = time.Now().Add(10 * time.Millisecond) })
	keyExpired := hold(kept, func(g *Grant) { g.Caller.ExpiresAt = time.Now().Add(10 * time.Millisecond) })
	if _, err := k.Revoke(t.Context(), key.ID, "test"); err != nil {
		t.Fatal(err)
	}
	for _, held := range []context.Context{revoked, expired, keyExpired} {
		wantEnded(t, held)
	}
	if others.Err() != nil {
		t.Error("a grant of another key has ended")
	}
	_, err := v.From(elsewhere).SAS(t.Context(), tokenOf(key, "sb://h/orders"), "sb://h/orders")
	wantRefused(t, "the revoked key", err, "no key that is in force")
}

// Refusals from one address are bounded. Other addresses, and valid tokens, are not concerned.
func TestRefusalsAreBounded(t *testing.T) {
	k := newKeys(t)
	key := newKey(t, k, "acme", sendListen)
	v := New(Options{Keys: k, Limits: limits.New(nil, forebay.TenantLimits{}), Logger: slog.New(slog.DiscardHandler)})
	bounded := false
	for range 10_000 {
		_, err := v.From(elsewhere).Plain(t.Context(), key.ID, "wrong")
		if forebay.CodeOf(err) == forebay.CodeRateLimited {
			bounded = true
			break
		}
		wantRefused(t, "a wrong key", err, "are not those of an API key")
	}
	if !bounded {
		t.Fatal("10,000 wrong keys were looked at")
	}
	_, err := v.From(loopback).Plain(t.Context(), key.ID, "wrong")
	wantRefused(t, "another address", err, "are not those of an API key")
	if _, err := v.From(elsewhere).SAS(t.Context(), tokenOf(key, "sb://h/orders"), "sb://h/orders"); err != nil {
		t.Errorf("a valid token from there: %v", err)
	}
}
