package server

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/forebayhq/forebay/internal/dashboard"
	"github.com/forebayhq/forebay/internal/signin"
)

// UI configures the dashboard.
type UI struct {
	Off       bool   `koanf:"off"`        // it is not served
	Path      string `koanf:"path"`       // where it stands; default /ui
	ReadOnly  bool   `koanf:"read_only"`  // nobody changes anything there
	PublicURL string `koanf:"public_url"` // scheme and host that browsers use, behind a proxy
	Grafana   string `koanf:"grafana"`    // address of the shipped board, which pages link to
	// Session is how long one lasts; default 12 h.
	Session time.Duration `koanf:"session"`
	// Idle is after how long an unused session ends; default 1 h.
	Idle time.Duration `koanf:"idle"`
	OIDC OIDC          `koanf:"oidc"` // how people sign in without a key
}

const (
	shortestSession = time.Minute
	longestSession  = 30 * 24 * time.Hour
)

func (u UI) withDefaults() UI {
	u.Path = or(u.Path, dashboard.DefaultBase)
	u.OIDC = u.OIDC.withDefaults()
	u.Session, u.Idle = or(u.Session, signin.DefaultLifetime), or(u.Idle, signin.DefaultIdle)
	return u
}

func (u UI) validate(bad func(field, format string, args ...any)) {
	if u.Session < shortestSession || u.Session > longestSession {
		bad("ui.session", "goes from 1m to 720h")
	}
	if u.Idle < shortestSession || u.Idle > u.Session {
		bad("ui.idle", "goes from 1m to the length of a session")
	}
	if first, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/"); first == "v1" || first == "openai" || first == "runtime" || first == "anthropic" {
		bad("ui.path", "is where the API stands")
	}
	if g, err := url.Parse(u.Grafana); u.Grafana != "" && (err != nil || g.Scheme != "http" && g.Scheme != "https") {
		bad("ui.grafana", "must be an address such as https://grafana.example.com/d/forebay")
	}
	if err := dashboard.Check(dashboard.Options{Base: u.Path, PublicURL: u.PublicURL}); err != nil {
		bad(err.Field, "%s", err.Message)
	}
	u.validateOIDC(bad)
}

// base is the path of the dashboard, or "" if it is off.
func (u UI) base() string {
	if u.Off {
		return ""
	}
	return u.Path
}

// address is where browsers find the dashboard of a server that listens, or "".
func (u UI) address(listens net.Addr, encrypted bool) string {
	base := u.base()
	if base == "" || listens == nil {
		return ""
	}
	if u.PublicURL != "" {
		return strings.TrimRight(u.PublicURL, "/") + base
	}
	scheme := "http"
	if encrypted {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(listens.String())
	if ip := net.ParseIP(host); err == nil && ip.IsUnspecified() {
		host = "localhost" // it answers on all addresses, this machine's own among them
	}
	return scheme + "://" + net.JoinHostPort(host, port) + base
}

// newSignIns returns the sessions of the dashboard. They are there where it is off too: another
// process may serve it.
func newSignIns(s *Server) *signin.Service {
	u := s.options.UI
	return signin.New(signin.Options{Store: s.store.SignIns, Keys: s.keys, Lifetime: u.Session, Idle: u.Idle, People: u.OIDC.on()})
}

// newDashboard returns the dashboard of a server, or nil if it is off.
func newDashboard(s *Server, sessions *signin.Service) (*dashboard.Dashboard, error) {
	u := s.options.UI
	if u.Off {
		return nil, nil
	}
	provider, err := newProvider(s, sessions)
	if err != nil {
		return nil, err
	}
	return dashboard.New(dashboard.Options{
		SignIn: sessions, Provider: provider,
		Base: u.Path, PublicURL: u.PublicURL, Version: s.options.Version, ReadOnly: u.ReadOnly, Grafana: u.Grafana,
	}), nil
}

// behindProxy reports whether browsers come by another name than this machine's. Then a request
// from this machine says nothing about who makes it, so a server without keys answers nobody.
func (u UI) behindProxy() bool {
	at, err := url.Parse(u.PublicURL)
	if u.Off || u.PublicURL == "" || err != nil {
		return false
	}
	if at.Hostname() == "localhost" {
		return false
	}
	address, err := netip.ParseAddr(at.Hostname())
	return err != nil || !address.IsLoopback()
}
