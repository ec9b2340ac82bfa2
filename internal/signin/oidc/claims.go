package oidc

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/signin"
)

// Claims are what a provider says of a person or a program.
type Claims map[string]any

const (
	// maxRoles is how many texts of a claim are looked at.
	maxRoles = 1000
	// maxNameBytes bounds the name of a person.
	maxNameBytes = 120
)

// Find returns a claim by its name. If there is none, dots in the name step into objects, as in
// Keycloak's realm_access.roles.
func (c Claims) Find(name string) any {
	if value, ok := c[name]; ok {
		return value
	}
	var value any = map[string]any(c)
	for part := range strings.SplitSeq(name, ".") {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[part]
	}
	return value
}

// Texts returns a claim that is a list of texts, such as roles, or one text.
func (c Claims) Texts(name string) (roles []string) {
	switch value := c.Find(name).(type) {
	case string:
		return []string{value}
	case []any:
		for _, item := range value[:min(len(value), maxRoles)] {
			if role, ok := item.(string); ok {
				roles = append(roles, role)
			}
		}
	}
	return roles
}

// elsewhere reports whether the provider left a claim out and says where it is instead. Entra ID
// does this to long lists of groups.
func (c Claims) elsewhere(name string) bool {
	names, ok := c["_claim_names"].(map[string]any)
	return ok && names[name] != nil
}

// nameClaims are where the name of a person is looked for.
var nameClaims = []string{"preferred_username", "email", "sub"}

// name returns the name of a person, or "".
func (c Claims) name(configured string) string {
	wanted := nameClaims
	if configured != "" {
		wanted = []string{configured}
	}
	for _, claim := range wanted {
		if name, ok := c.Find(claim).(string); ok && forebay.ValidText(name, maxNameBytes) {
			return name
		}
	}
	return ""
}

// idBytes are 50 bits: nobody finds another subject with the same id.
const idBytes = 10

// nameOf returns the name of a person with an id, which comes from the issuer and the subject.
// Providers let people choose names; the id tells two with the same name apart.
func nameOf(name, issuer, subject string) string {
	hash := sha256.Sum256([]byte(issuer + "\n" + subject))
	return name + "#" + strings.ToLower(base32.StdEncoding.EncodeToString(hash[:]))[:idBytes]
}

var (
	errNoRole  = errors.New("none of the person's roles is configured")
	errTenants = errors.New("the person's roles are in different tenants")
)

// grant adds what the roles of a person may do. It returns those that are configured, sorted.
func (o Options) grant(p *signin.Person, roles []string) (granted []string, err error) {
	for _, name := range roles {
		role, ok := o.Roles[name]
		if !ok || slices.Contains(granted, name) {
			continue
		}
		granted = append(granted, name)
		if role.Tenant != "" && p.Tenant != "" && role.Tenant != p.Tenant {
			return nil, fmt.Errorf("%w: %q and %q", errTenants, p.Tenant, role.Tenant)
		}
		if role.Tenant != "" {
			p.Tenant = role.Tenant
		}
		for _, scope := range role.Scopes {
			if !slices.Contains(p.Scopes, scope) {
				p.Scopes = append(p.Scopes, scope)
			}
		}
	}
	if len(granted) == 0 {
		return nil, errNoRole
	}
	if p.Tenant == "" {
		p.Tenant = forebay.DefaultTenant
	}
	slices.Sort(granted)
	return granted, nil
}
