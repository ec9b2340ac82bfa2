package message

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

// A token that is accepted is the token of that number and secret, and of no other.
func FuzzParseToken(f *testing.F) {
	f.Add(NewToken(1, -1))
	f.Add("")
	f.Add("AAAAAAAAAAEAAAAAAAAAAR")
	f.Add(strings.Repeat("\n", 22))
	f.Fuzz(func(t *testing.T, token string) {
		number, secret, err := ParseToken("lock_token", token)
		if err == nil && NewToken(number, secret) != token {
			t.Errorf("%q is taken for %q", token, NewToken(number, secret))
		}
		if err != nil && forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("%q: %v", token, err)
		}
	})
}
