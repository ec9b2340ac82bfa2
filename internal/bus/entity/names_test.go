package entity

import (
	"strings"
	"testing"
)

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"q": true, "": false, "a b": false, "t/subscriptions/s": true, "t/subscriptions/": false, "/subscriptions/s": false, "t/s": true, "a/b/subscriptions/s": true, "t/subscriptions": false, "t/$deadletterqueue": false,
		"t/subscriptions/s/x": false, "t/subscriptions/" + strings.Repeat("s", 51): false,
	} {
		if ValidName(name) != want {
			t.Errorf("%q is valid: %t", name, !want)
		}
	}
}
