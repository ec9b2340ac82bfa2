package keys

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding"
	"fmt"
	"hash"
	"time"

	"github.com/forebayhq/forebay"
)

// HMAC-SHA256 hashes twice, and each time the first block depends on the key alone (RFC 2104
// section 4). What SHA-256 holds after that block is all that later signatures need of the key.
const (
	chainBytes   = sha256.Size // of SHA-256's state after a whole block
	signingBytes = 2 * chainBytes
	innerPad     = 0x36
	outerPad     = 0x5c
)

// signingState returns what is stored of a key that signs tokens: SHA-256's state after the inner
// pad, and after the outer. The key itself cannot be computed from it.
func signingState(key string) ([]byte, error) {
	secret := []byte(key)
	if len(secret) > sha256.BlockSize {
		sum := sha256.Sum256(secret)
		secret = sum[:]
	}
	state := make([]byte, 0, signingBytes)
	for _, pad := range []byte{innerPad, outerPad} {
		var block [sha256.BlockSize]byte
		copy(block[:], secret)
		for i := range block {
			block[i] ^= pad
		}
		saved, err := saveAfter(block)
		if err != nil {
			return nil, err
		}
		state = append(state, saved[chainAt:chainAt+chainBytes]...)
	}
	return state, nil
}

// chainAt is where the state begins in what crypto/sha256 marshals, after a mark of four bytes.
const chainAt = 4

// saveAfter returns what crypto/sha256 marshals of its state after one block.
func saveAfter(block [sha256.BlockSize]byte) ([]byte, error) {
	h := sha256.New()
	h.Write(block[:])
	saved, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil || len(saved) < chainAt+chainBytes {
		return nil, fmt.Errorf("save the state of a hash: %d bytes, %w", len(saved), err)
	}
	return saved, nil
}

// resume returns a SHA-256 that has hashed one block and then held that state.
func resume(chain []byte) (hash.Hash, error) {
	saved, err := saveAfter([sha256.BlockSize]byte{})
	if err != nil {
		return nil, err
	}
	copy(saved[chainAt:], chain)
	h := sha256.New()
	return h, h.(encoding.BinaryUnmarshaler).UnmarshalBinary(saved)
}

// signed returns the HMAC-SHA256 of a message under the key whose signingState that is.
func signed(state, message []byte) ([]byte, error) {
	if len(state) != signingBytes {
		return nil, fmt.Errorf("the stored state of a key has %d bytes", len(state))
	}
	inner, err := resume(state[:chainBytes])
	if err != nil {
		return nil, err
	}
	outer, err := resume(state[chainBytes:])
	if err != nil {
		return nil, err
	}
	inner.Write(message)
	outer.Write(inner.Sum(nil))
	return outer.Sum(nil), nil
}

var (
	errNotSigned = forebay.Errorf(forebay.CodeUnauthorized,
		"the token names no key that is in force, or was not signed with that key")
	errCannotSign = forebay.Errorf(forebay.CodeUnauthorized,
		"this key cannot sign tokens: it was made before keys could, or without the scopes send, listen and manage; make a new one with: forebay keys create --scopes send,listen")
)

// noState is checked in place of a key that does not exist, so that the answer takes as long.
var noState = make([]byte, signingBytes)

// Signed returns whom the key of that id makes, if mac is the HMAC-SHA256 of message under the
// key's text. It is CodeUnauthorized if it is not, or if the key is unknown, expired, revoked, or
// cannot sign.
func (s *Service) Signed(ctx context.Context, id string, message, mac []byte) (forebay.Caller, error) {
	c, err := s.byID(ctx, id)
	if err != nil {
		return forebay.Caller{}, err
	}
	state := c.signing
	if len(state) == 0 {
		state = noState
	}
	want, err := signed(state, message)
	if err != nil {
		return forebay.Caller{}, err
	}
	same := subtle.ConstantTimeCompare(want, mac) == 1
	switch {
	case c.err != nil:
		return forebay.Caller{}, errNotSigned
	case len(c.signing) == 0:
		return forebay.Caller{}, errCannotSign
	case !same:
		return forebay.Caller{}, errNotSigned
	}
	s.uses.note(id, s.store.Now(), s.writeUses)
	return c.caller, nil
}

// Now returns the time by the database's clock, which ends keys.
func (s *Service) Now() time.Time { return s.store.Now() }

// ToLocal returns when it is a time of the database's clock by this process's.
func (s *Service) ToLocal(at time.Time) time.Time { return s.store.ToLocal(at) }
