package server

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

// Each mistake in ui.oidc is named by its key, and what is right is not.
func TestOIDCOptions(t *testing.T) {
	const directory = "https://login.microsoftonline.com/8f1e7a52-97e6-4b6c-a1b2-4cf0b9b1a001/v2.0"
	valid := func() UI {
		return UI{PublicURL: "https://forebay.example.com", OIDC: OIDC{Issuer: directory, ClientID: "id", ClientSecret: "secret",
			Roles: map[string]OIDCRole{"Forebay.Viewer": {Scopes: []forebay.Scope{forebay.ScopeView}, Tenant: "acme"}}}}
	}
	for name, c := range map[string]struct {
		change func(*UI)
		want   string // "": nothing is wrong
	}{
		"right":                {func(*UI) {}, ""},
		"none":                 {func(u *UI) { *u = UI{} }, ""},
		"another provider":     {func(u *UI) { u.OIDC.Issuer = "https://id.example.com/realms/ops" }, ""},
		"this machine":         {func(u *UI) { u.OIDC.Issuer = "http://127.0.0.1:8081" }, ""},
		"no public address":    {func(u *UI) { u.PublicURL = "" }, "ui.oidc: needs ui.public_url"},
		"no issuer":            {func(u *UI) { u.OIDC.Issuer = "" }, "ui.oidc.issuer: must be an https address"},
		"plain http":           {func(u *UI) { u.OIDC.Issuer = "http://id.example.com" }, "ui.oidc.issuer: must be an https address"},
		"a query":              {func(u *UI) { u.OIDC.Issuer += "?p=b2c" }, "ui.oidc.issuer: must be an https address"},
		"the metadata":         {func(u *UI) { u.OIDC.Issuer = "https://id.example.com/.well-known/openid-configuration" }, "ui.oidc.issuer: is the address without"},
		"common":               {func(u *UI) { u.OIDC.Issuer = "https://login.microsoftonline.com/common/v2.0" }, "ui.oidc.issuer: common lets people of every directory in"},
		"organizations":        {func(u *UI) { u.OIDC.Issuer = "https://LOGIN.microsoftonline.us/organizations/v2.0" }, "ui.oidc.issuer: organizations lets people of every directory in"},
		"version 1":            {func(u *UI) { u.OIDC.Issuer = strings.TrimSuffix(directory, "/v2.0") }, "ui.oidc.issuer: of Entra ID must be"},
		"a domain":             {func(u *UI) { u.OIDC.Issuer = "https://login.microsoftonline.com/example.com/v2.0" }, "with the directory's id and not its domain"},
		"no client":            {func(u *UI) { u.OIDC.ClientID = "" }, "ui.oidc.client_id: is needed"},
		"no secret":            {func(u *UI) { u.OIDC.ClientSecret = "" }, "ui.oidc.client_secret: is needed"},
		"no openid":            {func(u *UI) { u.OIDC.Scopes = []string{"profile"} }, "ui.oidc.scopes: must have openid"},
		"two scopes in one":    {func(u *UI) { u.OIDC.Scopes = []string{"openid", "profile email"} }, `ui.oidc.scopes: "profile email" is no scope`},
		"no roles":             {func(u *UI) { u.OIDC.Roles = nil }, "ui.oidc.roles: must have from 1"},
		"a role for nothing":   {func(u *UI) { u.OIDC.Roles["x"] = OIDCRole{} }, "ui.oidc.roles.x.scopes: must have at least one"},
		"an unknown scope":     {func(u *UI) { u.OIDC.Roles["x"] = OIDCRole{Scopes: []forebay.Scope{"root"}} }, `ui.oidc.roles.x.scopes: "root" is none of`},
		"a bad tenant":         {func(u *UI) { u.OIDC.Roles["x"] = OIDCRole{Scopes: forebay.Scopes, Tenant: "a b"} }, "ui.oidc.roles.x.tenant:"},
		"control characters":   {func(u *UI) { u.OIDC.Name = "a\nb" }, "ui.oidc.name:"},
		"a name claim's":       {func(u *UI) { u.OIDC.NameClaim = "a\nb" }, "ui.oidc.name_claim:"},
		"only a name is there": {func(u *UI) { u.OIDC = OIDC{Name: "x"} }, "ui.oidc.issuer: must be"},
	} {
		u := valid()
		c.change(&u)
		err := Options{UI: u}.WithDefaults().Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret\"") {
			t.Errorf("%s: the error shows the secret: %v", name, err)
		}
	}
}
