package forebay

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a string that no log, error or configuration print shows. Reveal gives the value.
type Secret string

const redacted = "***"

// Reveal returns the value itself.
func (s Secret) Reveal() string { return string(s) }

// String returns a mask, or nothing when there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format masks the secret under every verb, wrong ones such as %d included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

func (s Secret) GoString() string              { return s.String() }
func (s Secret) LogValue() slog.Value          { return slog.StringValue(s.String()) }
func (s Secret) MarshalText() ([]byte, error)  { return []byte(s.String()), nil }
func (s *Secret) UnmarshalText(b []byte) error { *s = Secret(b); return nil }
