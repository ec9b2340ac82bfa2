package oidc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	// metadataFor is how long the provider's metadata is taken from memory.
	metadataFor = time.Hour
	// retryAfter is how long the provider is left alone after it has failed.
	retryAfter = 5 * time.Second
)

// metadata is what a provider says of itself, as far as this process knows it.
type metadata struct {
	issuer   string
	http     *http.Client
	failures *failures
	needs    func(*provider) []string // the addresses that must be there

	lock chan struct{} // full while somebody reads or changes what follows
	last *provider     // nil: not known yet
	next time.Time     // when the provider is to be asked again
	err  error         // of the last time
}

func newMetadata(issuer string, client *http.Client, f *failures) *metadata {
	return &metadata{issuer: issuer, http: client, failures: f, lock: make(chan struct{}, 1)}
}

// provider is a provider as its metadata describe it (OpenID Connect Discovery 1.0 section 3).
type provider struct {
	*oidc.Provider
	EndSession    string `json:"end_session_endpoint"`
	NamesIssuer   bool   `json:"authorization_response_iss_parameter_supported"` // RFC 9207
	JWKS          string `json:"jwks_uri"`
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
}

// provider returns the provider's metadata. It asks for them at most once at a time. What is
// known stays in use while the provider cannot be reached.
func (m *metadata) provider(ctx context.Context) (*provider, error) {
	select {
	case m.lock <- struct{}{}:
		defer func() { <-m.lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := time.Now() // the wait does not go by the clock of a test
	if now.Before(m.next) {
		return m.last, m.err
	}
	// One browser that gives up does not fail the others that wait.
	found, err := m.discover(context.WithoutCancel(ctx))
	switch {
	case err == nil:
		m.last, m.err, m.next = found, nil, now.Add(metadataFor)
	case m.last != nil:
		m.failures.logger.Warn("the OpenID Connect provider does not answer; what is known of it goes on to count", slog.String("error", kindOf(err)))
		m.next = time.Now().Add(retryAfter)
	default:
		m.failures.log("its metadata cannot be used", err)
		m.err, m.next = err, time.Now().Add(retryAfter)
	}
	return m.last, m.err
}

func (m *metadata) discover(ctx context.Context) (*provider, error) {
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, m.http), m.issuer)
	if err != nil {
		return nil, err
	}
	p := &provider{Provider: found}
	if err := found.Claims(p); err != nil {
		return nil, err
	}
	for _, address := range m.needs(p) {
		if !safe(address) {
			return nil, errMetadata
		}
	}
	if !safe(p.EndSession) {
		p.EndSession = ""
	}
	return p, nil
}

var errMetadata = errors.New("its metadata lack an address, or have one that is not https")

// safe reports whether an address of the provider may be used: https, or http on this machine.
func safe(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && Loopback(u.Hostname()))
}

// Loopback reports whether a host is this machine.
func Loopback(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host)
}
