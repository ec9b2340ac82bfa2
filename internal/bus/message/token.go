package message

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/forebayhq/forebay"
)

// A token lets a receiver settle a delivery or use a session. Receivers must not read anything
// into it. It holds the number of the message or session and the random number of the lock.
const tokenBytes = 16

var tokenEncoding = base64.RawURLEncoding.Strict()

// NewToken returns the token for a lock with that secret on the message or session of that number.
func NewToken(number, secret int64) string {
	var b [tokenBytes]byte
	binary.BigEndian.PutUint64(b[:8], uint64(number))
	binary.BigEndian.PutUint64(b[8:], uint64(secret))
	return tokenEncoding.EncodeToString(b[:])
}

// ParseToken reads a token that came in that field.
func ParseToken(field, token string) (number, secret int64, err error) {
	var b [tokenBytes]byte
	if len(token) == tokenEncoding.EncodedLen(tokenBytes) {
		// The decoder skips line ends, so it may have found fewer bytes.
		if n, err := tokenEncoding.Decode(b[:], []byte(token)); err == nil && n == tokenBytes {
			return int64(binary.BigEndian.Uint64(b[:8])), int64(binary.BigEndian.Uint64(b[8:])), nil
		}
	}
	return 0, 0, forebay.Invalid(field, "is not such a token")
}
