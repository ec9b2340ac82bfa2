package server

import (
	"net/netip"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/webhook"
)

// policy returns where webhooks may go.
func (w Webhooks) policy() (webhook.Policy, error) {
	allow, err := parsePrefixes("webhooks.allow_addresses", w.AllowAddresses)
	if err != nil {
		return webhook.Policy{}, err
	}
	deny, err := parsePrefixes("webhooks.deny_addresses", w.DenyAddresses)
	return webhook.Policy{AllowHTTP: w.AllowHTTP, Allow: allow, Deny: deny}, err
}

// parsePrefixes parses addresses and CIDR ranges. A range with bits below its mask is an error,
// because its meaning is unclear.
func parsePrefixes(field string, list []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, text := range list {
		prefix, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil && addr.Zone() == "" {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
			return nil, forebay.Invalid(field, "%.60q is not an address or a CIDR range such as 10.1.0.0/16", text)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}
