package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/forebayhq/forebay"
)

// Policy says where webhooks may go. The zero value allows public addresses by https.
type Policy struct {
	AllowHTTP bool           // plain http as well
	Allow     []netip.Prefix // otherwise refused addresses of receivers in the operator's own network
	Deny      []netip.Prefix // more addresses to refuse, such as public ones of the operator; wins over Allow
	Resolver  *net.Resolver  // nil: the system's
}

// reserved are address ranges that are not public hosts, in IPv4 and in 2000::/3, the part of
// IPv6 in use. They come from the registries of RFC 6890. Added are addresses that contain other
// addresses, and those at which clouds serve their machines.
var reserved = prefixes(
	"0.0.0.0/8",        // this network
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // carrier-grade NAT; 100.100.100.200 serves metadata
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // Azure's platform, in the public range
	"169.254.0.0/16",   // link-local; 169.254.169.254 serves metadata
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments; 192.0.0.192 serves metadata
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // 6to4 relays
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved, and broadcast
	"2001::/23",        // protocol assignments, and Teredo, which carries IPv4 addresses
	"2001:db8::/32",    // documentation
	"2002::/16",        // 6to4, which carries IPv4 addresses
	"3fff::/20",        // documentation
)

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(list ...string) []netip.Prefix {
	parsed := make([]netip.Prefix, len(list))
	for i, p := range list {
		parsed[i] = netip.MustParsePrefix(p)
	}
	return parsed
}

// errAddress is a connection that the policy refused.
type errAddress struct{ addr netip.Addr }

func (e errAddress) Error() string { return fmt.Sprintf("%s is not a public address", e.addr) }

// permits reports whether a webhook may be sent to the address.
func (p *Policy) permits(addr netip.Addr) bool {
	addr = addr.Unmap()
	if addr.Zone() != "" {
		return false // an address of one link; prefixes contain no address with a zone
	}
	if contains(p.Deny, addr) {
		return false
	}
	if contains(p.Allow, addr) {
		return true
	}
	if nat64.Contains(addr) {
		b := addr.As16()
		return p.permits(netip.AddrFrom4([4]byte(b[12:])))
	}
	return (addr.Is4() || globalUnicast.Contains(addr)) && !contains(reserved, addr)
}

func contains(list []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// control checks the address that the dialer is about to connect to. The name was resolved just
// now, so it does not matter what it meant when the webhook was created.
func (p *Policy) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !p.permits(to.Addr()) {
		return errAddress{to.Addr()}
	}
	return nil
}

// resolveTimeout bounds the DNS lookup when a webhook is created or changed.
const resolveTimeout = 5 * time.Second

// CheckURL reports why a webhook may not have that URL, or nil. Webhooks must be allowed to each
// address of its host. Errors do not quote the URL, whose path or query may be a secret.
func (p *Policy) CheckURL(ctx context.Context, raw string) error {
	u, err := p.parseURL(raw)
	if err != nil {
		return err
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		if !p.permits(addr) {
			return errNoAddress().Caused(errAddress{addr})
		}
		return nil
	}
	resolver := p.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := resolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil || len(addrs) == 0 {
		return errNoAddress().Caused(err)
	}
	for _, addr := range addrs {
		if !p.permits(addr) {
			return errNoAddress().Caused(errAddress{addr})
		}
	}
	return nil
}

// errNoAddress is the same for a name that does not exist and for one with an internal address.
// Tenants must not learn which names the operator's network has.
func errNoAddress() *forebay.Error {
	return forebay.Invalid("url", "the host has no public address; webhooks are not sent to private, local or reserved ones")
}

// parseURL checks everything but the address.
func (p *Policy) parseURL(raw string) (*url.URL, error) {
	if len(raw) > forebay.MaxWebhookURLBytes {
		return nil, forebay.Invalid("url", "is longer than %d bytes", forebay.MaxWebhookURLBytes)
	}
	if !forebay.ValidText(raw, forebay.MaxWebhookURLBytes) {
		return nil, forebay.Invalid("url", "is empty, or holds control characters")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, forebay.Invalid("url", "is not a URL").Caused(errors.Unwrap(err))
	case u.Scheme == "http" && !p.AllowHTTP:
		return nil, forebay.Invalid("url", "must begin with https://")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, forebay.Invalid("url", "must begin with https://")
	case u.User != nil:
		return nil, forebay.Invalid("url", "must not hold a user name or password; deliveries are signed")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, forebay.Invalid("url", "has no host")
	case u.Fragment != "":
		return nil, forebay.Invalid("url", "must not have a fragment")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, forebay.Invalid("url", "has a port out of range")
		}
	}
	return u, nil
}
