package auth

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/signin/oidc"
)

// JWT configures the issuer of JSON Web Tokens.
type JWT struct {
	Issuer    string   // "": no token is taken
	Audiences []string // a token must be for one of them
	Claims    []string // that have roles: lists, or texts between spaces
	Roles     map[string]Role
	// TenantClaim is a claim whose text names one of Tenants; "": the roles say the tenant.
	TenantClaim string
	Tenants     map[string]string // of Forebay, by the texts of TenantClaim
}

// Role is what a token with a role allows.
type Role struct {
	Scopes   []forebay.Scope // among send, listen and manage
	Entities []string        // as of an API key; none: all
	Tenant   string          // "": that of the other roles or of the claim, or else the default
}

const (
	// maxJWTBytes bounds a token. Those of Entra ID may have 200 groups.
	maxJWTBytes = 32 << 10
	// maxTokens is how many valid tokens are remembered.
	maxTokens = 4096
)

var (
	errNoJWT    = forebay.Errorf(forebay.CodeUnauthorized, "this server takes no JSON Web Tokens: none are configured in service_bus.jwt; use an API key")
	errJWT      = forebay.Errorf(forebay.CodeUnauthorized, "the token is no JSON Web Token, or too long")
	errNoRole   = forebay.Errorf(forebay.CodeUnauthorized, "the token has no role that is configured in service_bus.jwt")
	errNoTenant = forebay.Errorf(forebay.CodeUnauthorized, "the token names no tenant that is configured in service_bus.jwt, or several")
)

// issuer grants what tokens of one issuer say.
type issuer struct {
	options JWT
	tokens  *oidc.Tokens

	mu    sync.Mutex
	valid map[[sha256.Size]byte]Grant // by the token's hash
}

func newIssuer(o JWT, logger *slog.Logger) *issuer {
	if o.Issuer == "" {
		return nil
	}
	return &issuer{options: o, valid: map[[sha256.Size]byte]Grant{},
		tokens: oidc.NewTokens(oidc.TokensOptions{Issuer: o.Issuer, Audiences: o.Audiences, Logger: logger})}
}

func (i *issuer) grant(ctx context.Context, token string) (Grant, error) {
	if i == nil {
		return Grant{}, errNoJWT
	}
	if len(token) > maxJWTBytes || strings.Count(token, ".") != 2 {
		return Grant{}, errJWT
	}
	hash := sha256.Sum256([]byte(token))
	if g, ok := i.remembered(hash); ok {
		return g, nil
	}
	said, subject, expires, err := i.tokens.Verify(ctx, token)
	if err != nil {
		return Grant{}, err
	}
	g, err := i.options.grant(said)
	if err != nil {
		return Grant{}, err
	}
	g.Caller.KeyID, g.Caller.ExpiresAt, g.Expires = forebay.PersonPrefix+said.NameOf(i.options.Issuer, subject), expires, expires
	i.remember(hash, g)
	return g, nil
}

// grant returns what the claims of a valid token allow.
func (o JWT) grant(said oidc.Claims) (Grant, error) {
	var g Grant
	tenant := ""
	if o.TenantClaim != "" {
		named := said.Texts(o.TenantClaim)
		if len(named) != 1 || o.Tenants[named[0]] == "" {
			return Grant{}, errNoTenant
		}
		tenant = o.Tenants[named[0]]
	}
	for _, name := range o.rolesOf(said) {
		role, ok := o.Roles[name]
		if !ok {
			continue
		}
		if role.Tenant != "" && tenant != "" && role.Tenant != tenant {
			return Grant{}, errNoTenant
		}
		if role.Tenant != "" {
			tenant = role.Tenant
		}
		g.allows = append(g.allows, allowance{role.Scopes, role.Entities})
		for _, scope := range role.Scopes {
			if !slices.Contains(g.Caller.Scopes, scope) {
				g.Caller.Scopes = append(g.Caller.Scopes, scope)
			}
		}
	}
	if len(g.allows) == 0 {
		return Grant{}, errNoRole
	}
	if tenant == "" {
		tenant = forebay.DefaultTenant
	}
	g.Caller.Tenant = tenant
	return g, nil
}

// rolesOf returns the texts of the claims that have roles, each once. The claim scp of Entra ID
// and scope of others (RFC 8693 section 4.2) are one text with spaces between.
func (o JWT) rolesOf(said oidc.Claims) (roles []string) {
	for _, claim := range o.Claims {
		for _, text := range said.Texts(claim) {
			for name := range strings.FieldsSeq(text) {
				if !slices.Contains(roles, name) {
					roles = append(roles, name)
				}
			}
		}
	}
	return roles
}

func (i *issuer) remembered(hash [sha256.Size]byte) (Grant, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	g, ok := i.valid[hash]
	return g, ok && time.Now().Before(g.Expires)
}

// remember remembers a valid token. If there are too many it forgets half of them.
func (i *issuer) remember(hash [sha256.Size]byte, g Grant) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.valid) >= maxTokens {
		for other := range i.valid {
			if delete(i.valid, other); len(i.valid) <= maxTokens/2 {
				break
			}
		}
	}
	i.valid[hash] = g
}
