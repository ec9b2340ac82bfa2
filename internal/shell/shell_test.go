package shell_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/shell"
)

// What somebody chose as an id becomes one argument, which a real shell does not run.
func TestWordIsOneWord(t *testing.T) {
	for _, text := range []string{"plain-1_2.3:@/x", "", "it's", "x'; echo hit; '", "$(echo hit)", "`echo hit`", "a b\tc\nd", "-n", `back\slash"quote`, "*", "~", "#x", "a=b"} {
		out, err := exec.Command("sh", "-c", "printf '<%s>' "+shell.Word(text)).Output()
		if want := "<" + text + ">"; err != nil || string(out) != want {
			t.Errorf("%q became %q (%v)", text, out, err)
		}
	}
	if got := shell.Word("plain-1"); got != "plain-1" {
		t.Errorf("a plain word is quoted: %s", got)
	}
}

// No argument is taken for a flag, and a line that needs no -- has none.
func TestArgsAreNoFlags(t *testing.T) {
	for want, texts := range map[string][]string{
		"a b-c":         {"a", "b-c"},
		"'a -b'":        {"a -b"},
		"-- -x":         {"-x"},
		"-- a '--x y'":  {"a", "--x y"},
		`-- '-it'\''s'`: {"-it's"},
	} {
		if got := shell.Args(texts...); got != want {
			t.Errorf("%s became %s, not %s", strings.Join(texts, " | "), got, want)
		}
	}
}
