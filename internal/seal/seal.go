// Package seal encrypts what a client keeps for this server: it can neither read nor change it.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
)

// New returns AES-256-GCM with random nonces. All who have the secret, and name the same purpose,
// have the same key. It is derived (HKDF, RFC 5869) and of use for nothing else.
func New(secret []byte, purpose string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, purpose, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
