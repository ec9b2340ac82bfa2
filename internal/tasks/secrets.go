package tasks

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
)

// secrets are the parts of a function's configured headers that no caller may see. The longest
// comes first, so that a whole header is masked before the token inside it.
type secrets []string

const (
	// shortestSecret is the length in bytes from which a credential is masked. A shorter one could
	// be any word.
	shortestSecret = 6
	// shortestRandom is the length from which any header value counts as a credential.
	shortestRandom = 16
	mask           = "***"
)

// credentialWords are parts of the names of headers that carry credentials.
var credentialWords = []string{"auth", "key", "token", "secret", "password", "cookie", "credential", "signature"}

// headerSecrets returns the secrets in these headers. They are whole values, the token after a
// scheme ("Bearer …", "token …"), and the user and password within "Basic …" (RFC 7617).
func headerSecrets(headers http.Header) secrets {
	var found secrets
	add := func(text string, shortest int) {
		if len(text) >= shortest {
			found = append(found, text)
		}
	}
	for name, values := range headers {
		shortest := shortestRandom
		if slices.ContainsFunc(credentialWords, func(w string) bool { return strings.Contains(strings.ToLower(name), w) }) {
			shortest = shortestSecret
		}
		for _, value := range values {
			add(value, shortest)
			parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t;,", r) })
			for i, part := range parts {
				_, assigned, named := strings.Cut(part, "=") // a cookie, or a parameter of a scheme
				switch {
				case named && strings.Trim(assigned, "=") != "":
					add(strings.Trim(assigned, `"`), shortest)
				case i > 0 || len(parts) == 1: // the first of several is the scheme
					add(part, shortest)
				}
			}
			if scheme, pair, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Basic") {
				pair, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(pair))
				_, password, _ := strings.Cut(string(pair), ":")
				add(string(pair), shortest)
				add(password, shortest)
			}
		}
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(found)
}

// mask replaces each secret in a text.
func (s secrets) mask(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, mask)
	}
	return text
}

// maskJSON masks secrets in the strings of a valid JSON text, however they are escaped. It returns
// a text without secrets byte for byte.
func (s secrets) maskJSON(text []byte) []byte {
	if len(s) == 0 {
		return text
	}
	var out []byte
	kept := 0 // how much of text has been copied to out
	for i := 0; i < len(text); {
		if text[i] != '"' {
			i++
			continue
		}
		end := endOfString(text, i)
		if masked, ok := s.maskLiteral(text[i:end]); ok {
			out = append(append(out, text[kept:i]...), masked...)
			kept = end
		}
		i = end
	}
	if kept == 0 {
		return text
	}
	return append(out, text[kept:]...)
}

// endOfString returns the index after the closing quote of the string that begins at a quote.
func endOfString(text []byte, at int) int {
	for i := at + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// maskLiteral masks a JSON string with its quotes. ok is false if it contains no secret.
func (s secrets) maskLiteral(literal []byte) (masked []byte, ok bool) {
	plain := string(bytes.Trim(literal, `"`))
	if bytes.IndexByte(literal, '\\') >= 0 && json.Unmarshal(literal, &plain) != nil {
		return nil, false
	}
	hidden := s.mask(plain)
	if hidden == plain {
		return nil, false
	}
	masked, err := forebay.EncodeJSON(hidden)
	return masked, err == nil
}
