package kit

import (
	"os/exec"
	"testing"
)

// What somebody put into an address becomes one argument, which a real shell does not run.
func TestShellTakesOneWord(t *testing.T) {
	for _, text := range []string{"plain-1_2.3:@/x", "", "it's", "x'; echo hit; '", "$(echo hit)", "`echo hit`", "a b\tc\nd", "-n", `back\slash"quote`, "*", "~"} {
		out, err := exec.Command("sh", "-c", "printf '<%s>' "+Shell(text)).Output()
		if want := "<" + text + ">"; err != nil || string(out) != want {
			t.Errorf("%q became %q (%v)", text, out, err)
		}
	}
	if got := Shell("plain-1"); got != "plain-1" {
		t.Errorf("a plain word is quoted: %s", got)
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
