package kit

import (
	"os/exec"
	"testing"
)

// A command line that names the reader's tenant does so before the arguments that are no flags.
func TestCommandsNameTheTenant(t *testing.T) {
	v := View{Request: &Request{Tenant: "acme"}}
	for line, want := range map[string]string{
		"forebay orchestrations show " + Args("x y"): "forebay orchestrations show 'x y' --for-tenant acme",
		"forebay orchestrations show " + Args("-x"):  "forebay --for-tenant acme orchestrations show -- -x",
		"forebay search " + Args("a -- \u202eb"):     "forebay --for-tenant acme search 'a -- \ufffdb'",
		"make dashboard":                             "make dashboard",
	} {
		if got := v.InTenant(line); got != want {
			t.Errorf("%s became %s, not %s", line, got, want)
		}
	}
}

// The line that makes a page's request again holds what an address named, and what a tenant wrote,
// as words of its own.
func TestCurlQuotesWhatCameFromOutside(t *testing.T) {
	call := Call{Method: "POST", Path: "/v1/jobs/$(echo hit)'`echo hit`?x=\"", Body: `{"input":"it's '; echo hit; '"}`}
	script := "curl() { for word; do printf '<%s>' \"$word\"; done; }; FOREBAY_API_KEY=k FOREBAY_URL=u; " + call.Curl("$(echo hit)")
	out, err := exec.Command("sh", "-c", script).Output()
	want := "<-H><Authorization: Bearer k><-H><Forebay-Tenant: $(echo hit)><-X><POST><--json><" + call.Body + "><u" + call.Path + ">"
	if err != nil || string(out) != want {
		t.Errorf("the line became\n%s, not\n%s (%v)", out, want, err)
	}
}
