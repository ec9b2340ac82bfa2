package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

const (
	// maxSASBytes bounds a token. Names of entities have up to 260 bytes, and clients escape them
	// up to twice.
	maxSASBytes = 8 << 10
	// maxKeyNameBytes bounds the key's name, escapes included.
	maxKeyNameBytes = 512
	// latestExpiry is the end of the year 9999, in Unix seconds.
	latestExpiry = 253402300799
)

// sasScheme begins a shared access signature, before a space.
const sasScheme = "SharedAccessSignature"

// signature is a shared access signature as it was read.
type signature struct {
	signed  []byte    // what is signed: the resource as in the token, a line feed, the expiry
	mac     []byte    // HMAC-SHA256 of that under the key's text
	path    string    // of the resource
	name    string    // the resource, if it has neither a scheme nor a slash before it; "": it has
	expires time.Time // by the clock of whoever made the token
	key     string    // the key's name
}

func errToken(what string) error {
	return forebay.Errorf(forebay.CodeUnauthorized, "the shared access signature %s", what)
}

// IsSAS reports whether a token says that it is a shared access signature.
func IsSAS(token string) bool {
	scheme, _, _ := strings.Cut(token, " ")
	return strings.EqualFold(scheme, sasScheme)
}

// parseSAS reads a token such as
//
//	SharedAccessSignature sr=…&sig=…&se=…&skn=…
//
// The fields come in any order. One that is not known is not signed and has no meaning; it is
// passed over.
func parseSAS(token string) (signature, error) {
	if len(token) > maxSASBytes {
		return signature{}, errToken("is too long")
	}
	scheme, rest, _ := strings.Cut(token, " ")
	if !strings.EqualFold(scheme, sasScheme) {
		return signature{}, errToken("does not begin with " + sasScheme + " and a space")
	}
	fields := map[string]string{"sr": "", "sig": "", "se": "", "skn": ""}
	for field := range strings.SplitSeq(strings.TrimSpace(rest), "&") {
		name, value, _ := strings.Cut(field, "=")
		before, known := fields[name]
		switch {
		case !known:
		case before != "":
			return signature{}, errToken("has the field " + name + " twice")
		default:
			fields[name] = value
		}
	}
	for _, name := range []string{"sr", "sig", "se", "skn"} {
		if fields[name] == "" {
			return signature{}, errToken("lacks the field " + name)
		}
	}
	resource, err := url.QueryUnescape(fields["sr"])
	if err != nil || !forebay.ValidText(resource, maxSASBytes) {
		return signature{}, errToken("has a field sr that is no escaped address")
	}
	s := signature{signed: []byte(fields["sr"] + "\n" + fields["se"])}
	if !strings.Contains(resource, "://") && !strings.HasPrefix(resource, "/") {
		s.name = PathOf("/" + resource)
		resource = "sb://" + resource // it begins with the host all the same
	}
	s.path = PathOf(resource)
	if s.mac, err = macOf(fields["sig"]); err != nil {
		return signature{}, err
	}
	if s.expires, err = expiryOf(fields["se"]); err != nil {
		return signature{}, err
	}
	s.key, err = keyName(fields["skn"])
	return s, err
}

// macOf reads the field sig: base64, escaped.
func macOf(field string) ([]byte, error) {
	text, err := url.PathUnescape(field) // a plus is one of base64's characters
	if err == nil {
		var mac []byte
		if mac, err = base64.StdEncoding.Strict().DecodeString(text); err == nil && len(mac) == sha256.Size {
			return mac, nil
		}
	}
	return nil, errToken("has a field sig that is no escaped base64 of 32 bytes")
}

// expiryOf reads the field se: Unix seconds.
func expiryOf(field string) (time.Time, error) {
	seconds, err := strconv.ParseUint(field, 10, 64)
	if err != nil || seconds > latestExpiry {
		return time.Time{}, errToken("has a field se that is no time in Unix seconds")
	}
	return time.Unix(int64(seconds), 0), nil
}

// keyName reads the field skn. The SDK for Python escapes it twice.
func keyName(field string) (string, error) {
	name := field
	for range 2 {
		unescaped, err := url.QueryUnescape(name)
		if err != nil || len(name) > maxKeyNameBytes {
			return "", errToken("has a field skn that is no escaped name")
		}
		name = unescaped
	}
	if !forebay.ValidText(name, maxKeyNameBytes) {
		return "", errToken("has a field skn that is no escaped name")
	}
	return name, nil
}

// managementNode is below an entity. A token for it counts for the entity.
const managementNode = "$management"

// PathOf returns the path of a resource or an audience: of "sb://host/orders?a=b" and "/orders"
// it is "orders". Case stays as it is. A token for the management node of an entity counts for
// the entity, so that node is left out.
func PathOf(resource string) string {
	if _, rest, found := strings.Cut(resource, "://"); found {
		if at := strings.IndexAny(rest, "/?#"); at < 0 {
			return ""
		} else if resource = rest[at:]; resource[0] != '/' {
			return ""
		}
	}
	if at := strings.IndexAny(resource, "?#"); at >= 0 {
		resource = resource[:at]
	}
	if path, err := url.PathUnescape(resource); err == nil {
		resource = path
	}
	path := strings.Trim(resource, "/")
	if at := len(path) - len(managementNode); at >= 0 && strings.EqualFold(path[at:], managementNode) && (at == 0 || path[at-1] == '/') {
		path = strings.TrimRight(path[:at], "/")
	}
	return path
}
