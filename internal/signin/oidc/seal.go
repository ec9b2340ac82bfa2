package oidc

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/forebayhq/forebay/internal/seal"
)

// Lifetime is how long a sign-in may take at the provider.
const Lifetime = 10 * time.Minute

// MaxNextBytes bounds the address of the page that comes afterwards. A cookie has room for it.
const MaxNextBytes = 1 << 10

// flow is a sign-in under way. The browser keeps it, sealed.
type flow struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"` // of PKCE
	Next     string `json:"p"` // page that comes afterwards
	BegunAt  int64  `json:"t"` // Unix seconds
}

// newSeal returns what seals flows. Its key is the same in all processes of the same client, and
// of use for nothing else.
func newSeal(o Options) (cipher.AEAD, error) {
	return seal.New([]byte(o.ClientSecret.Reveal()), "forebay sign-in 1\n"+o.Issuer+"\n"+o.ClientID)
}

// random returns 256 random bits as text.
func random() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func (c *Client) sealed(f flow) (string, error) {
	plain, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(c.seal.Seal(nil, nil, plain, nil)), nil
}

// open returns the flow of a cookie, unless it is not ours or too old.
func (c *Client) open(sealed string) (f flow, ok bool) {
	data, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return flow{}, false
	}
	plain, err := c.seal.Open(nil, nil, data, nil)
	if err != nil || json.Unmarshal(plain, &f) != nil {
		return flow{}, false
	}
	age := c.options.Now().Sub(time.Unix(f.BegunAt, 0))
	return f, age < Lifetime && age > -Lifetime // processes' clocks differ
}
