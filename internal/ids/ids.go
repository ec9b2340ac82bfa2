// Package ids makes the ids of jobs, API keys, documents and payloads.
package ids

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"time"
)

// Encoding is base32 without the letters i, l, o and u, which readers mistake for others.
var Encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// New returns a prefix and 26 characters. The first 48 bits are the time in milliseconds, so ids
// that are made together stand together in an index. The last 80 bits are random, so nobody can
// guess an id.
func New(prefix string) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(b[6:])
	var text [26]byte
	Encoding.Encode(text[:], b[:])
	return prefix + string(text[:])
}
