package server

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard"
	"github.com/forebayhq/forebay/internal/signin"
	"github.com/forebayhq/forebay/internal/signin/oidc"
)

// OIDC lets people sign in to the dashboard by an OpenID Connect provider. The zero value lets
// only keys in.
type OIDC struct {
	Name         string         `koanf:"name"`   // of the provider, on the page; default OpenID Connect
	Issuer       string         `koanf:"issuer"` // https://..., as the provider's metadata name it
	ClientID     string         `koanf:"client_id"`
	ClientSecret forebay.Secret `koanf:"client_secret"`
	Scopes       []string       `koanf:"scopes"`      // default openid, profile, email
	RolesClaim   string         `koanf:"roles_claim"` // default roles
	// NameClaim is the claim with a person's name. The default is preferred_username, or else
	// email, or else sub.
	NameClaim string              `koanf:"name_claim"`
	Roles     map[string]OIDCRole `koanf:"roles"` // by the provider's name
}

// OIDCRole is what people with a role may do.
type OIDCRole struct {
	Scopes []forebay.Scope `koanf:"scopes"`
	// Tenant is where they act. The default is that of the person's other roles, or default.
	Tenant string `koanf:"tenant"`
}

// on reports whether anything of it is configured.
func (o OIDC) on() bool {
	return o.Issuer != "" || o.ClientID != "" || o.ClientSecret != "" || len(o.Roles) > 0 || o.Name != "" || len(o.Scopes) > 0 || o.RolesClaim != "" || o.NameClaim != ""
}

func (o OIDC) withDefaults() OIDC {
	if !o.on() {
		return o
	}
	o.Name, o.RolesClaim = or(o.Name, "OpenID Connect"), or(o.RolesClaim, "roles")
	if len(o.Scopes) == 0 {
		o.Scopes = []string{"openid", "profile", "email"}
	}
	return o
}

const (
	maxOIDCText   = 256
	maxOIDCSecret = 4096
	maxOIDCScopes = 32
	maxOIDCRoles  = 256
)

func (u UI) validateOIDC(bad func(field, format string, args ...any)) {
	o := u.OIDC
	if !o.on() {
		return
	}
	if u.PublicURL == "" {
		bad("ui.oidc", "needs ui.public_url: the provider sends browsers to an address below it, ui.path%s", dashboard.CallbackPath)
	}
	o.validateIssuer(bad)
	if !forebay.ValidText(o.ClientID, maxOIDCText) {
		bad("ui.oidc.client_id", "is needed: the id that the provider gave this server")
	}
	if o.ClientSecret == "" || len(o.ClientSecret) > maxOIDCSecret {
		bad("ui.oidc.client_secret", "is needed, as client_secret or client_secret_file: the provider makes one")
	}
	for field, text := range map[string]string{"name": o.Name, "roles_claim": o.RolesClaim} {
		if !forebay.ValidText(text, maxOIDCText) {
			bad("ui.oidc."+field, "is too long, or has control characters")
		}
	}
	if o.NameClaim != "" && !forebay.ValidText(o.NameClaim, maxOIDCText) {
		bad("ui.oidc.name_claim", "is too long, or has control characters")
	}
	if !slices.Contains(o.Scopes, "openid") || len(o.Scopes) > maxOIDCScopes {
		bad("ui.oidc.scopes", "must have openid, and at most %d in all", maxOIDCScopes)
	}
	for _, scope := range o.Scopes {
		if !forebay.ValidText(scope, maxOIDCText) || strings.ContainsAny(scope, " \"\\") {
			bad("ui.oidc.scopes", "%.80q is no scope of OpenID Connect", scope)
		}
	}
	if len(o.Roles) == 0 || len(o.Roles) > maxOIDCRoles {
		bad("ui.oidc.roles", "must have from 1 to %d roles: without one nobody could sign in", maxOIDCRoles)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Roles)) {
		o.Roles[name].validate("ui.oidc.roles."+name, bad)
	}
}

func (r OIDCRole) validate(field string, bad func(field, format string, args ...any)) {
	if len(r.Scopes) == 0 {
		bad(field+".scopes", "must have at least one of submit, read, operate, view, payload, admin")
	}
	for _, scope := range r.Scopes {
		if !scope.Valid() {
			bad(field+".scopes", "%.40q is none of submit, read, operate, view, payload, admin", scope)
		}
	}
	if r.Tenant != "" && !forebay.ValidName(r.Tenant) {
		bad(field+".tenant", "%.80q is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'", r.Tenant)
	}
}

// entraHosts are where Microsoft Entra ID stands, in its clouds.
var entraHosts = []string{"login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn"}

var entraPath = regexp.MustCompile(`^/[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}/v2\.0$`)

func (o OIDC) validateIssuer(bad func(field, format string, args ...any)) {
	issuer, err := url.Parse(o.Issuer)
	switch {
	case err != nil || issuer.Host == "" || issuer.User != nil || issuer.RawQuery != "" || issuer.Fragment != "" || len(o.Issuer) > maxOIDCText ||
		issuer.Scheme != "https" && (issuer.Scheme != "http" || !oidc.Loopback(issuer.Hostname())):
		bad("ui.oidc.issuer", "must be an https address without a query, as the provider's metadata name it")
	case strings.HasSuffix(o.Issuer, "/.well-known/openid-configuration"):
		bad("ui.oidc.issuer", "is the address without /.well-known/openid-configuration")
	case slices.Contains(entraHosts, strings.ToLower(issuer.Hostname())):
		switch first, _, _ := strings.Cut(strings.TrimPrefix(issuer.Path, "/"), "/"); first {
		case "common", "organizations", "consumers":
			bad("ui.oidc.issuer", "%s lets people of every directory in, and no token names it as its issuer; name your own: https://%s/DIRECTORY-ID/v2.0", first, issuer.Host)
		default:
			if !entraPath.MatchString(issuer.Path) {
				bad("ui.oidc.issuer", "of Entra ID must be https://%s/DIRECTORY-ID/v2.0, with the directory's id and not its domain", issuer.Host)
			}
		}
	}
}

// newProvider returns what signs people in, or nil.
func newProvider(s *Server, sessions *signin.Service) (dashboard.Provider, error) {
	u := s.options.UI
	o := u.OIDC
	if !o.on() {
		return nil, nil
	}
	roles := map[string]oidc.Role{}
	for name, role := range o.Roles {
		roles[name] = oidc.Role(role)
	}
	return oidc.New(oidc.Options{
		Name: o.Name, Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret, Scopes: o.Scopes, RolesClaim: o.RolesClaim, NameClaim: o.NameClaim, Roles: roles,
		Redirect: strings.TrimSuffix(u.PublicURL, "/") + u.Path + dashboard.CallbackPath,
		Sessions: sessions, Audit: s.store.Audit, Logger: s.log,
	})
}
