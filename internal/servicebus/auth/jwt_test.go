package auth

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/keys"
)

// provider is an issuer of tokens.
type provider struct {
	*httptest.Server
	t    *testing.T
	key  atomic.Pointer[rsa.PrivateKey]
	kid  atomic.Value // string
	down atomic.Bool
	asks atomic.Int64 // for its keys
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{t: t}
	p.rotate("first")
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if p.down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		answer(w, map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.asks.Add(1)
		public := p.key.Load().PublicKey
		answer(w, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": p.kid.Load(),
			"n": encode(public.N.Bytes()), "e": encode(big.NewInt(int64(public.E)).Bytes()),
		}}})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// rotate has the provider sign with a new key.
func (p *provider) rotate(kid string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		p.t.Fatal(err)
	}
	p.key.Store(key)
	p.kid.Store(kid)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// token returns a signed token with these claims, besides those that every token needs.
func (p *provider) token(claims map[string]any) string {
	all := map[string]any{"iss": p.URL, "aud": "https://servicebus.azure.net", "sub": "app-1", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
	for name, value := range claims {
		all[name] = value
	}
	return p.signed(map[string]any{"alg": "RS256", "kid": p.kid.Load(), "typ": "JWT"}, all)
}

func (p *provider) signed(header, claims map[string]any) string {
	head, err := json.Marshal(header)
	if err != nil {
		p.t.Fatal(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		p.t.Fatal(err)
	}
	text := encode(head) + "." + encode(body)
	hash := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, p.key.Load(), crypto.SHA256, hash[:])
	if err != nil {
		p.t.Fatal(err)
	}
	return text + "." + encode(sig)
}

func (p *provider) verifier(k *keys.Service, change func(*JWT)) *Verifier {
	o := JWT{
		Issuer: p.URL, Audiences: []string{"https://servicebus.azure.net", "https://servicebus.azure.net/"}, Claims: []string{"roles", "scp", "appid"},
		Roles: map[string]Role{
			"Sender":    {Scopes: []forebay.Scope{forebay.ScopeSend}, Entities: []string{"orders"}},
			"Receiver":  {Scopes: []forebay.Scope{forebay.ScopeListen}, Entities: []string{"news/subscriptions/a"}},
			"owner-app": {Scopes: []forebay.Scope{forebay.ScopeManage}, Tenant: "acme"},
			"elsewhere": {Scopes: []forebay.Scope{forebay.ScopeManage}, Tenant: "other"},
		},
	}
	if change != nil {
		change(&o)
	}
	return New(Options{Keys: k, JWT: o, Logger: slog.New(slog.DiscardHandler)})
}

func TestRolesOfTokens(t *testing.T) {
	p, k := newProvider(t), newKeys(t)
	newKey(t, k, "acme", sendListen) // so that the server is closed
	roles := p.verifier(k, nil)
	tenants := p.verifier(k, func(o *JWT) { o.TenantClaim, o.Tenants = "tid", map[string]string{"d-1": "acme", "d-2": "second"} })
	for what, c := range map[string]struct {
		v            *Verifier
		claims       map[string]any
		tenant       string
		allows, none []string
		says         string
	}{
		"a role":                {roles, map[string]any{"roles": []string{"Sender", "unknown"}}, "default", []string{"send orders", "send Orders/x"}, []string{"send news", "listen orders", "send "}, ""},
		"two roles":             {roles, map[string]any{"roles": []string{"Sender", "Receiver"}}, "default", []string{"send orders", "listen news/Subscriptions/a"}, []string{"listen orders", "send news/subscriptions/a"}, ""},
		"scopes":                {roles, map[string]any{"scp": "openid Sender"}, "default", []string{"send orders"}, []string{"listen orders"}, ""},
		"an application":        {roles, map[string]any{"appid": "owner-app"}, "acme", []string{"manage ", "send a", "listen b"}, nil, ""},
		"a role and a tenant":   {roles, map[string]any{"appid": "owner-app", "roles": "Sender"}, "acme", []string{"manage "}, nil, ""},
		"two tenants":           {roles, map[string]any{"roles": []string{"owner-app", "elsewhere"}}, "", nil, nil, "names no tenant"},
		"no role":               {roles, map[string]any{"roles": []string{"unknown"}}, "", nil, nil, "no role"},
		"no claim":              {roles, nil, "", nil, nil, "no role"},
		"roles of another kind": {roles, map[string]any{"roles": map[string]any{"Sender": true}, "scp": 7}, "", nil, nil, "no role"},
		"a tenant's claim":      {tenants, map[string]any{"roles": "Sender", "tid": "d-2"}, "second", []string{"send orders"}, nil, ""},
		"both agree":            {tenants, map[string]any{"roles": "owner-app", "tid": "d-1"}, "acme", []string{"manage "}, nil, ""},
		"they do not agree":     {tenants, map[string]any{"roles": "owner-app", "tid": "d-2"}, "", nil, nil, "names no tenant"},
		"an unknown tenant":     {tenants, map[string]any{"roles": "Sender", "tid": "d-3"}, "", nil, nil, "names no tenant"},
		"no tenant":             {tenants, map[string]any{"roles": "Sender"}, "", nil, nil, "names no tenant"},
		"several tenants":       {tenants, map[string]any{"roles": "Sender", "tid": []string{"d-1", "d-2"}}, "", nil, nil, "names no tenant"},
		"an empty tenant":       {tenants, map[string]any{"roles": "Sender", "tid": ""}, "", nil, nil, "names no tenant"},
	} {
		grant, err := c.v.From(elsewhere).JWT(t.Context(), p.token(c.claims))
		if c.says != "" {
			wantRefused(t, what, err, c.says)
			continue
		}
		if err != nil || grant.Caller.Tenant != c.tenant || !grant.Caller.IsPerson() || time.Until(grant.Expires) < 50*time.Minute {
			t.Errorf("%s: %+v, %v", what, grant, err)
		}
		for i, list := range [][]string{c.allows, c.none} {
			for _, text := range list {
				right, path, _ := strings.Cut(text, " ")
				if got := grant.May(forebay.Scope(right), path); got != (i == 0) {
					t.Errorf("%s: %s is allowed: %t", what, text, got)
				}
			}
		}
	}
}

func TestHostileJWTs(t *testing.T) {
	p, k := newProvider(t), newKeys(t)
	newKey(t, k, "acme", sendListen)
	peer := p.verifier(k, nil).From(elsewhere)
	role := map[string]any{"roles": "Sender"}
	with := func(name string, value any) map[string]any { return map[string]any{"roles": "Sender", name: value} }
	valid := p.token(role)
	if _, err := peer.JWT(t.Context(), valid); err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(valid, ".")
	body, sig, _ := strings.Cut(rest, ".")
	claims := map[string]any{"iss": p.URL, "aud": "https://servicebus.azure.net", "sub": "a", "exp": time.Now().Add(time.Hour).Unix(), "roles": "Sender"}
	unsigned := encode([]byte(`{"alg":"none"}`)) + "." + body + "."
	shared := encode([]byte(`{"alg":"HS256","kid":"first"}`)) + "." + body
	mac := hmac.New(sha256.New, p.key.Load().N.Bytes())
	mac.Write([]byte(shared))
	other := newProvider(t)
	for what, token := range map[string]string{
		"nothing":                 "",
		"two parts":               head + "." + body,
		"four parts":              valid + ".x",
		"too long":                valid + strings.Repeat("x", maxJWTBytes),
		"no base64":               "!." + body + "." + sig,
		"no signature":            head + "." + body + ".",
		"alg none":                unsigned,
		"a shared secret":         shared + "." + encode(mac.Sum(nil)),
		"another body":            head + "." + encode([]byte(`{"iss":"`+p.URL+`","aud":"https://servicebus.azure.net","sub":"a","exp":9999999999,"roles":"owner-app"}`)) + "." + sig,
		"expired":                 p.token(with("exp", time.Now().Add(-time.Second).Unix())),
		"without an expiry":       p.token(with("exp", nil)),
		"not valid yet":           p.token(with("nbf", time.Now().Add(time.Hour).Unix())),
		"another audience":        p.token(with("aud", "https://management.azure.com")),
		"no audience":             p.token(with("aud", nil)),
		"another issuer":          p.token(with("iss", "https://elsewhere.example.com")),
		"another issuer's key":    other.signed(map[string]any{"alg": "RS256", "kid": "first"}, claims),
		"a key that nobody has":   p.signed(map[string]any{"alg": "RS256", "kid": "unknown"}, map[string]any{"iss": p.URL}),
		"no subject":              p.token(with("sub", nil)),
		"a subject with controls": p.token(with("sub", "a\nb")),
		"claims that are a list":  head + "." + encode([]byte(`[]`)) + "." + sig,
	} {
		_, err := peer.JWT(t.Context(), token)
		if forebay.CodeOf(err) != forebay.CodeUnauthorized {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := peer.JWT(t.Context(), valid); err != nil {
		t.Errorf("the valid token afterwards: %v", err)
	}
}

// Wrong signatures do not have the issuer asked for its keys each time. A new key of the issuer
// is found all the same.
func TestKeysOfTheIssuerAreAskedForSparingly(t *testing.T) {
	p, k := newProvider(t), newKeys(t)
	newKey(t, k, "acme", sendListen)
	peer := p.verifier(k, nil).From(elsewhere)
	if _, err := peer.JWT(t.Context(), p.token(map[string]any{"roles": "Sender"})); err != nil {
		t.Fatal(err)
	}
	p.rotate("second")
	if _, err := peer.JWT(t.Context(), p.token(map[string]any{"roles": "Sender"})); err != nil {
		t.Errorf("a token with a new key: %v", err)
	}
	for range 40 {
		token := p.signed(map[string]any{"alg": "RS256", "kid": rand.Text()}, map[string]any{"iss": p.URL, "exp": time.Now().Add(time.Hour).Unix()})
		_, err := peer.JWT(t.Context(), token)
		if forebay.CodeOf(err) != forebay.CodeUnauthorized {
			t.Fatal(err)
		}
	}
	if asks := p.asks.Load(); asks > 20 {
		t.Errorf("the issuer was asked for its keys %d times", asks)
	}
	if _, err := peer.JWT(t.Context(), p.token(map[string]any{"roles": "Receiver"})); err != nil {
		t.Errorf("a valid token afterwards: %v", err)
	}
}

// A valid token is remembered until it expires, and only so many are.
func TestTokensAreRemembered(t *testing.T) {
	p, k := newProvider(t), newKeys(t)
	newKey(t, k, "acme", sendListen)
	v := p.verifier(k, nil)
	token := p.token(map[string]any{"roles": "Sender"})
	first, err := v.From(elsewhere).JWT(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	again, err := v.From(loopback).JWT(t.Context(), token)
	if err != nil || again.Caller.KeyID != first.Caller.KeyID || !slices.Equal(again.Caller.Scopes, first.Caller.Scopes) {
		t.Errorf("without the issuer: %+v, %v", again, err)
	}
	for hash := range v.jwt.valid {
		past := v.jwt.valid[hash]
		past.Expires = time.Now()
		v.jwt.valid[hash] = past
	}
	if _, ok := v.jwt.remembered(sha256.Sum256([]byte(token))); ok {
		t.Error("an expired token is remembered")
	}
	for i := range 3 * maxTokens {
		v.jwt.remember(sha256.Sum256([]byte{byte(i), byte(i >> 8)}), first)
	}
	if n := len(v.jwt.valid); n > maxTokens || n < maxTokens/2 {
		t.Errorf("%d tokens are remembered", n)
	}
}

// While the issuer cannot be reached the answer says so, and does not count as a wrong token.
func TestIssuerThatIsDown(t *testing.T) {
	p, k := newProvider(t), newKeys(t)
	newKey(t, k, "acme", sendListen)
	p.down.Store(true)
	_, err := p.verifier(k, nil).From(elsewhere).JWT(t.Context(), p.token(map[string]any{"roles": "Sender"}))
	if forebay.CodeOf(err) != forebay.CodeUnavailable {
		t.Error(err)
	}
}
