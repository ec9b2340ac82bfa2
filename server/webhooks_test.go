package server

import (
	"net/netip"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestWebhookPolicy(t *testing.T) {
	p, err := Webhooks{AllowHTTP: true, AllowAddresses: []string{"10.1.0.0/16", "fd00::1"}, DenyAddresses: []string{"203.0.113.7"}}.policy()
	want := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::1/128"), netip.MustParsePrefix("203.0.113.7/32")}
	if err != nil || !p.AllowHTTP || len(p.Allow) != 2 || len(p.Deny) != 1 || p.Allow[0] != want[0] || p.Allow[1] != want[1] || p.Deny[0] != want[2] {
		t.Errorf("got %+v (%v)", p, err)
	}
	for _, text := range []string{"", "10.1.0.1/16", "10.1.0.0/33", "localhost", "fe80::1%eth0/64", "::ffff:10.0.0.0/104"} {
		for _, w := range []Webhooks{{AllowAddresses: []string{text}}, {DenyAddresses: []string{text}}} {
			o := Options{Webhooks: w}.WithDefaults()
			if err := o.Validate(); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}
