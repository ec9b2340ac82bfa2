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
