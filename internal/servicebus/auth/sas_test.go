package auth

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

var sendListen = []forebay.Scope{forebay.ScopeSend, forebay.ScopeListen}

// Clients of each language write tokens in their own way. All of these are for one entity.
func TestTokensOfEachLanguage(t *testing.T) {
	k := newKeys(t)
	key := newKey(t, k, "acme", sendListen)
	peer := newVerifier(k).From(elsewhere)
	se := soon()
	token := func(sr, skn, form string) string {
		return fmt.Sprintf(form, sr, url.QueryEscape(sign(key.Key, sr, se)), se, skn)
	}
	const common = "SharedAccessSignature sr=%s&sig=%s&se=%s&skn=%s"
	const http = "SharedAccessSignature sig=%[2]s&se=%[3]s&skn=%[4]s&sr=%[1]s"
	for what, c := range map[string]struct{ token, audience string }{
		"Go":               {token(strings.ToLower(url.QueryEscape("amqps://Bus.example.com/Orders")), key.ID, common), "amqps://Bus.example.com/Orders"},
		"Go, emulator":     {token("amqp%3a%2f%2flocalhost%3a5672%2forders", key.ID, common), "amqp://localhost:5672/Orders"},
		"Java":             {token("amqp%3A%2F%2Fbus.example.com%2Forders", key.ID, common), "amqp://bus.example.com/orders"},
		"Java, management": {token("amqp%3A%2F%2Fbus.example.com%2Forders%2F%24management", key.ID, common), "amqp://bus.example.com/orders/$management"},
		"JavaScript":       {token("sb%3A%2F%2Fbus.example.com%2Forders", key.ID, common), "sb://bus.example.com/orders"},
		"JavaScript, HTTP": {token(url.QueryEscape("https://bus.example.com/orders?api-version=2021-05"), key.ID, http), "https://bus.example.com/orders?api-version=2021-05"},
		"Python":           {token("sb%3A%2F%2Fbus.example.com%2Forders", url.QueryEscape(url.QueryEscape(key.ID)), common), "sb://bus.example.com/orders"},
		".NET":             {token("amqps%3a%2f%2fbus.example.com%2forders%2f", key.ID, common), "amqps://bus.example.com/orders"},
		"no scheme":        {token("bus.example.com%2Forders", key.ID, common), "sb://bus.example.com/orders"},
		"a mere name":      {token("orders", key.ID, common), "/Orders"},
		"lower-case words": {strings.Replace(token("sb%3A%2F%2Fh%2Forders", key.ID, common), "SharedAccessSignature", "sharedaccesssignature", 1), "sb://h/orders"},
	} {
		grant, err := peer.SAS(t.Context(), c.token, c.audience)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if grant.Caller.KeyID != key.ID || grant.Caller.Tenant != "acme" || time.Until(grant.Expires) < 50*time.Minute || time.Until(grant.Expires) > 70*time.Minute {
			t.Errorf("%s: %+v", what, grant)
		}
		if !grant.May(forebay.ScopeSend, "ORDERS") || !grant.May(forebay.ScopeListen, "orders/$deadletterqueue") ||
			grant.May(forebay.ScopeManage, "orders") || grant.May(forebay.ScopeSend, "order") || grant.May(forebay.ScopeSend, "orders2") || grant.May(forebay.ScopeSend, "") {
			t.Errorf("%s: allows something else: path %q", what, grant.Path)
		}
	}
}

// The SDK for Go signs the name of what an entity forwards to, without a host before it.
func TestATokenForANameWithASlash(t *testing.T) {
	k := newKeys(t)
	key := newKey(t, k, "acme", []forebay.Scope{forebay.ScopeManage})
	peer := newVerifier(k).From(elsewhere)
	grant, err := peer.SAS(t.Context(), tokenOf(key, "contracts/order-submitted"), "/Contracts/order-submitted")
	if err != nil || !grant.May(forebay.ScopeSend, "contracts/order-submitted") || grant.May(forebay.ScopeSend, "order-submitted") {
		t.Errorf("%+v, %v", grant, err)
	}
	_, err = peer.SAS(t.Context(), tokenOf(key, "contracts/order-submitted"), "/contracts/other")
	wantRefused(t, "another entity", err, "another resource")
}

// A token for the namespace is for all entities. One with a key that is bound is for those alone.
func TestNamespaceTokens(t *testing.T) {
	k := newKeys(t)
	all := newKey(t, k, "acme", []forebay.Scope{forebay.ScopeManage})
	bound := newKey(t, k, "acme", []forebay.Scope{forebay.ScopeListen, forebay.ScopeManage}, "news", "orders/subscriptions/Audit")
	operator := newKey(t, k, "acme", []forebay.Scope{forebay.ScopeOperate, forebay.ScopeListen})
	peer := newVerifier(k).From(elsewhere)
	for what, c := range map[string]struct {
		key                forebay.APIKey
		audience           string
		allows, allowsNone []string
	}{
		"namespace":               {all, "sb://h", []string{"send orders", "listen news/subscriptions/a", "manage orders/x", "manage "}, nil},
		"namespace, with a slash": {all, "sb://h/", []string{"send orders", "manage "}, nil},
		"an entity":               {all, "sb://h/orders", []string{"manage orders", "send orders"}, []string{"manage ", "manage news"}},
		"bound":                   {bound, "sb://h", []string{"listen news", "send news/subscriptions/x", "manage orders/subscriptions/audit", "listen ORDERS/Subscriptions/AUDIT/$DeadLetterQueue"}, []string{"manage ", "listen orders", "listen orders/subscriptions/audit2", "send newsletters"}},
		"an operator's":           {operator, "sb://h", []string{"listen orders", "manage orders"}, []string{"send orders"}},
	} {
		grant, err := peer.SAS(t.Context(), tokenOf(c.key, c.audience), c.audience)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for i, list := range [][]string{c.allows, c.allowsNone} {
			for _, text := range list {
				right, path, _ := strings.Cut(text, " ")
				if got := grant.May(forebay.Scope(right), path); got != (i == 0) {
					t.Errorf("%s: %s is allowed: %t", what, text, got)
				}
			}
		}
		if grant.May(forebay.ScopeAdmin, "news") || grant.May(forebay.ScopeRead, "news") {
			t.Errorf("%s: it has a right that Service Bus does not have", what)
		}
	}
}

func TestHostileTokens(t *testing.T) {
	k := newKeys(t)
	key := newKey(t, k, "acme", sendListen)
	other := newKey(t, k, "other", sendListen)
	admin := newKey(t, k, "acme", []forebay.Scope{forebay.ScopeAdmin})
	v := newVerifier(k)
	const resource = "sb%3A%2F%2Fh%2Forders"
	se := soon()
	sig := url.QueryEscape(sign(key.Key, resource, se))
	past := fmt.Sprint(time.Now().Add(-time.Second).Unix())
	raw, err := base64.StdEncoding.DecodeString(sign(key.Key, resource, se))
	if err != nil {
		t.Fatal(err)
	}
	form := func(sr, sig, se, skn string) string {
		return "SharedAccessSignature sr=" + sr + "&sig=" + sig + "&se=" + se + "&skn=" + skn
	}
	if _, err := v.From(elsewhere).SAS(t.Context(), form(resource, sig, se, key.ID), "sb://h/orders"); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ token, says string }{
		"nothing":                      {"", "does not begin"},
		"only a scheme":                {"SharedAccessSignature ", "lacks the field"},
		"another scheme":               {"Bearer " + form(resource, sig, se, key.ID), "does not begin"},
		"no key":                       {"SharedAccessSignature sr=" + resource + "&sig=" + sig + "&se=" + se, "lacks the field skn"},
		"an empty key":                 {form(resource, sig, se, ""), "lacks the field skn"},
		"an empty signature":           {form(resource, "", se, key.ID), "lacks the field sig"},
		"two resources":                {form(resource, sig, se, key.ID) + "&sr=sb%3A%2F%2Fh", "field sr twice"},
		"two expiries":                 {form(resource, sig, se, key.ID) + "&se=99999999999", "field se twice"},
		"too long":                     {form(resource, sig, se, key.ID) + "&x=" + strings.Repeat("x", maxSASBytes), "too long"},
		"expired":                      {form(resource, url.QueryEscape(sign(key.Key, resource, past)), past, key.ID), "has expired"},
		"a later expiry":               {form(resource, sig, "9999999999", key.ID), "not signed"},
		"another resource":             {form("sb%3A%2F%2Fh", sig, se, key.ID), "not signed"},
		"the same in other escapes":    {form("sb%3a%2f%2fh%2forders", sig, se, key.ID), "not signed"},
		"the resource as it is":        {form("sb://h/orders", sig, se, key.ID), "not signed"},
		"a negative expiry":            {form(resource, sig, "-1", key.ID), "no time in Unix seconds"},
		"an expiry with a fraction":    {form(resource, sig, se+".5", key.ID), "no time in Unix seconds"},
		"an expiry that overflows":     {form(resource, sig, "18446744073709551617", key.ID), "no time in Unix seconds"},
		"an expiry in 10000":           {form(resource, sig, "253402300800", key.ID), "no time in Unix seconds"},
		"a broken escape":              {form("sb%3", sig, se, key.ID), "no escaped address"},
		"a control character":          {form("sb%3A%2F%2Fh%2F%00", sig, se, key.ID), "no escaped address"},
		"bytes that are no text":       {form("sb%3A%2F%2Fh%2F%ff", sig, se, key.ID), "no escaped address"},
		"no base64":                    {form(resource, "!!!!", se, key.ID), "no escaped base64"},
		"base64 for URLs":              {form(resource, base64.RawURLEncoding.EncodeToString(raw), se, key.ID), "no escaped base64"},
		"a shorter signature":          {form(resource, base64.StdEncoding.EncodeToString(raw[:31]), se, key.ID), "no escaped base64"},
		"a longer signature":           {form(resource, base64.StdEncoding.EncodeToString(append(raw[:32:32], 0)), se, key.ID), "no escaped base64"},
		"a hash in hexadecimal":        {form(resource, fmt.Sprintf("%x", raw), se, key.ID), "no escaped base64"},
		"a zero signature":             {form(resource, url.QueryEscape(base64.StdEncoding.EncodeToString(make([]byte, 32))), se, key.ID), "not signed"},
		"an unknown key":               {form(resource, sig, se, "RootManageSharedAccessKey"), "not signed"},
		"a key of another tenant":      {form(resource, sig, se, other.ID), "not signed"},
		"a key that does not sign":     {form(resource, url.QueryEscape(sign(admin.Key, resource, se)), se, admin.ID), "make a new one"},
		"a key's name with a null":     {form(resource, sig, se, "key%00"), "no escaped name"},
		"a key's name in many escapes": {form(resource, sig, se, strings.Repeat("%25", 400)), "no escaped name"},
		"another audience":             {tokenOf(key, "sb://h/news"), "for another resource"},
		"an audience that goes on":     {tokenOf(key, "sb://h/order"), "for another resource"},
		"an audience below":            {tokenOf(key, "sb://h/orders/subscriptions/x"), "for another resource"},
	} {
		_, err := v.From(elsewhere).SAS(t.Context(), c.token, "sb://h/orders")
		wantRefused(t, what, err, c.says)
		if err != nil && (strings.Contains(err.Error(), key.Key) || strings.Contains(err.Error(), sig)) {
			t.Errorf("%s: the error has a secret: %v", what, err)
		}
	}
	grant, err := v.From(elsewhere).SAS(t.Context(), tokenOf(other, "sb://h/orders"), "sb://h/orders")
	if err != nil || grant.Caller.Tenant != "other" {
		t.Errorf("the other tenant's own token: %+v, %v", grant, err)
	}
}

func TestPathOf(t *testing.T) {
	for resource, want := range map[string]string{
		"":                                     "",
		"/":                                    "",
		"sb://h":                               "",
		"sb://h/":                              "",
		"sb://h?a=/b":                          "",
		"sb://h#/a":                            "",
		"sb://h:5671/Orders":                   "Orders",
		"sb://h/orders/":                       "orders",
		"https://h/orders?api-version=2":       "orders",
		"/orders":                              "orders",
		"orders/$management":                   "orders",
		"orders/$Management/":                  "orders",
		"$management":                          "",
		"orders$management":                    "orders$management",
		"sb://h/a%2Fb":                         "a/b",
		"sb://h/t/Subscriptions/s":             "t/Subscriptions/s",
		"sb://h/t/Subscriptions/s/$management": "t/Subscriptions/s",
		"sb://h/%zz":                           "%zz",
	} {
		if got := PathOf(resource); got != want {
			t.Errorf("%q: %q, want %q", resource, got, want)
		}
	}
}

// Whatever stands in a token, reading it ends with a result or a refusal, and the result is what
// was signed.
func FuzzParseSAS(f *testing.F) {
	key := forebay.APIKey{ID: "key_1", Key: "fb_a"}
	for _, audience := range []string{"sb://h/orders", "https://h/a?b=c", "", "sb://h/a%2Fb/$management"} {
		f.Add(tokenOf(key, audience))
	}
	f.Add("SharedAccessSignature sr=a&sig=%2B%2F&se=1&skn=%2525")
	f.Add("SharedAccessSignature &&==&sr")
	f.Fuzz(func(t *testing.T, token string) {
		s, err := parseSAS(token)
		if err != nil {
			if forebay.CodeOf(err) != forebay.CodeUnauthorized {
				t.Fatal(err)
			}
			return
		}
		resource, expiry, _ := strings.Cut(string(s.signed), "\n")
		if !strings.Contains(token, "sr="+resource) || !strings.Contains(token, "se="+expiry) || len(s.mac) != 32 || s.key == "" || s.expires.Before(time.Unix(0, 0)) {
			t.Fatalf("%q was read as %+v", token, s)
		}
		if path := PathOf("/" + s.path); len(path) > len(s.path) {
			t.Fatalf("the path %q of the path %q", path, s.path)
		}
		if !forebay.CoversEntity(s.path, s.path+"/x") || forebay.CoversEntity(s.path+"/x", s.path) {
			t.Fatalf("the path %q", s.path)
		}
	})
}
