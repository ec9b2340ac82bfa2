package server

import (
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
	"github.com/forebayhq/forebay/internal/signin/oidc"
)

// ServiceBus configures the endpoint for clients of Azure Service Bus. The zero value serves none.
type ServiceBus struct {
	// Listen is host:port, with TLS. It takes AMQP, AMQP over WebSockets and HTTPS, and needs
	// tls. Clients expect port 5671, or 443 for WebSockets.
	Listen string `koanf:"listen"`
	// Plain is host:port of this machine, without TLS, for connection strings with
	// UseDevelopmentEmulator=true. Clients expect port 5672.
	Plain string `koanf:"plain"`
	// Endpoint is the host that clients connect to, with a port if they need one. Connection strings
	// name it.
	Endpoint string        `koanf:"endpoint"`
	JWT      ServiceBusJWT `koanf:"jwt"` // who may connect without an API key
}

// ServiceBusJWT takes JSON Web Tokens of one issuer, such as Entra ID. The zero value takes none.
type ServiceBusJWT struct {
	Issuer string `koanf:"issuer"` // https://..., as tokens and the issuer's metadata name it
	// Audiences are whom tokens are for; default https://servicebus.azure.net, with and without a
	// slash at the end.
	Audiences []string `koanf:"audiences"`
	// Claims are those with the roles of a token; default roles, scp, scope.
	Claims []string                  `koanf:"claims"`
	Roles  map[string]ServiceBusRole `koanf:"roles"` // by the texts in these claims
	// TenantClaim is a claim whose text says the tenant, by Tenants. The default is the role's.
	TenantClaim string            `koanf:"tenant_claim"`
	Tenants     map[string]string `koanf:"tenants"` // by the texts of TenantClaim
}

// ServiceBusRole is what a token with a role allows.
type ServiceBusRole struct {
	Scopes []forebay.Scope `koanf:"scopes"` // among send, listen and manage
	// Entities are queues, topics and TOPIC/subscriptions/NAME, with what is below them. The default
	// is all.
	Entities []string `koanf:"entities"`
	// Tenant is where that is allowed. The default is that of the other roles, or default.
	Tenant string `koanf:"tenant"`
}

// ConnectionString returns what clients of Service Bus need to connect with a key that was just
// made. It is "" if no endpoint is configured, or if the key cannot sign tokens.
func (s ServiceBus) ConnectionString(key forebay.APIKey) string {
	if s.Endpoint == "" || !key.SignsTokens || key.Key == "" {
		return ""
	}
	text := "Endpoint=sb://" + s.Endpoint + "/;SharedAccessKeyName=" + key.ID + ";SharedAccessKey=" + key.Key
	if len(key.Entities) == 1 { // clients refuse another entity than this one
		if _, subscription, _ := forebay.CutEntityPath(key.Entities[0]); subscription == "" {
			text += ";EntityPath=" + key.Entities[0]
		}
	}
	return text
}

// serviceBusAudiences are what Microsoft's clients ask Entra ID for.
var serviceBusAudiences = []string{"https://servicebus.azure.net", "https://servicebus.azure.net/"}

// on reports whether anything of it is configured.
func (j ServiceBusJWT) on() bool {
	return j.Issuer != "" || len(j.Audiences) > 0 || len(j.Claims) > 0 || len(j.Roles) > 0 || j.TenantClaim != "" || len(j.Tenants) > 0
}

func (s ServiceBus) withDefaults() ServiceBus {
	if !s.JWT.on() {
		return s
	}
	if len(s.JWT.Audiences) == 0 {
		s.JWT.Audiences = serviceBusAudiences
	}
	if len(s.JWT.Claims) == 0 {
		s.JWT.Claims = []string{"roles", "scp", "scope"}
	}
	return s
}

const (
	maxJWTText  = 256
	maxJWTTexts = 32
	maxJWTRoles = 1024
)

func (s ServiceBus) validate(encrypted bool, bad func(field, format string, args ...any)) {
	s.validateListeners(encrypted, bad)
	if s.Endpoint != "" && !validEndpoint(s.Endpoint) {
		bad("service_bus.endpoint", "must be a host name, or one with a port, such as bus.example.com")
	}
	if s.JWT.on() {
		s.JWT.validate(bad)
	}
}

var hostName = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z.-]*[0-9A-Za-z])?$`)

func validEndpoint(endpoint string) bool {
	host := endpoint
	if strings.Contains(endpoint, ":") {
		var port string
		var err error
		if host, port, err = net.SplitHostPort(endpoint); err != nil {
			return false
		}
		if n, err := net.LookupPort("tcp", port); err != nil || n == 0 || strings.Trim(port, "0123456789") != "" {
			return false
		}
	}
	return len(endpoint) <= maxJWTText && (hostName.MatchString(host) || net.ParseIP(host) != nil)
}

func (j ServiceBusJWT) validate(bad func(field, format string, args ...any)) {
	const at = "service_bus.jwt."
	j.validateIssuer(bad)
	for field, texts := range map[string][]string{"audiences": j.Audiences, "claims": j.Claims} {
		if len(texts) > maxJWTTexts || slices.ContainsFunc(texts, func(s string) bool { return !forebay.ValidText(s, maxJWTText) }) {
			bad(at+field, "must be at most %d texts, each without control characters", maxJWTTexts)
		}
	}
	if len(j.Roles) == 0 || len(j.Roles) > maxJWTRoles {
		bad(at+"roles", "must have from 1 to %d roles: without one no token allows anything", maxJWTRoles)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Roles)) {
		if strings.ContainsAny(name, " \t") || !forebay.ValidText(name, maxJWTText) {
			bad(at+"roles", "%.80q cannot be a role: it has a space or control characters, or is too long", name)
		}
		j.Roles[name].validate(at+"roles."+name, bad)
	}
	if (j.TenantClaim == "") != (len(j.Tenants) == 0) {
		bad(at+"tenant_claim", "goes with tenants, which says the tenant for each text of the claim")
	}
	if j.TenantClaim != "" && !forebay.ValidText(j.TenantClaim, maxJWTText) || len(j.Tenants) > maxJWTRoles {
		bad(at+"tenant_claim", "is too long, or there are more than %d tenants", maxJWTRoles)
	}
	for _, text := range slices.Sorted(maps.Keys(j.Tenants)) {
		if !forebay.ValidName(j.Tenants[text]) {
			bad(at+"tenants", "%.80q is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'", j.Tenants[text])
		}
	}
}

func (r ServiceBusRole) validate(field string, bad func(field, format string, args ...any)) {
	if len(r.Scopes) == 0 || slices.ContainsFunc(r.Scopes, func(s forebay.Scope) bool { return !s.ForMessages() }) {
		bad(field+".scopes", "must have at least one of send, listen, manage, and no others")
	}
	for _, path := range r.Entities {
		if !forebay.ValidEntityPath(path) {
			bad(field+".entities", "%.80q is no name of a queue or a topic, and no TOPIC/subscriptions/NAME", path)
		}
	}
	if r.Tenant != "" && !forebay.ValidName(r.Tenant) {
		bad(field+".tenant", "%.80q is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'", r.Tenant)
	}
}

func (j ServiceBusJWT) validateIssuer(bad func(field, format string, args ...any)) {
	const field = "service_bus.jwt.issuer"
	u, err := url.Parse(j.Issuer)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || len(j.Issuer) > maxJWTText ||
		u.Scheme != "https" && (u.Scheme != "http" || !oidc.Loopback(u.Hostname())):
		bad(field, "must be an https address without a query, as tokens name it")
	case strings.HasSuffix(j.Issuer, "/.well-known/openid-configuration"):
		bad(field, "is the address without /.well-known/openid-configuration")
	case slices.Contains(entraHosts, strings.ToLower(u.Hostname())):
		switch first, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/"); first {
		case "common", "organizations", "consumers":
			bad(field, "%s is no issuer of a token; name your own: https://sts.windows.net/DIRECTORY-ID/", first)
		}
	}
}

// auth returns the configuration as the package auth has it.
func (j ServiceBusJWT) auth() auth.JWT {
	roles := make(map[string]auth.Role, len(j.Roles))
	for name, role := range j.Roles {
		roles[name] = auth.Role(role)
	}
	return auth.JWT{Issuer: j.Issuer, Audiences: j.Audiences, Claims: j.Claims, Roles: roles, TenantClaim: j.TenantClaim, Tenants: j.Tenants}
}

// newVerifier returns what checks the tokens of clients of Service Bus.
func newVerifier(s *Server) *auth.Verifier {
	return auth.New(auth.Options{Keys: s.keys, Limits: s.limits, JWT: s.options.ServiceBus.JWT.auth(), Closed: s.options.UI.behindProxy(), Logger: s.log})
}
