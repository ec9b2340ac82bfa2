package signin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
)

// The id of a session is idPrefix and the beginning of the hash of its token, in hexadecimal. It
// tells nothing of the token.
const (
	idPrefix = "signin_"
	idBytes  = 16
)

func idOf(hash []byte) string { return idPrefix + hex.EncodeToString(hash[:idBytes]) }

// maxOwnerBytes bounds the name of who has signed in.
const maxOwnerBytes = 1024

func checkOwner(owner string) error {
	if len(owner) > maxOwnerBytes {
		return forebay.Invalid("owner", "has more than %d bytes", maxOwnerBytes)
	}
	return nil
}

// List returns the sessions that count now, those that end last first. It returns at most
// [forebay.MaxSignIns], all of them ("") or those of one owner, who is a key's id or a person.
// more tells that there are others.
func (s *Service) List(ctx context.Context, owner string) (list []forebay.SignIn, more bool, err error) {
	if err := checkOwner(owner); err != nil {
		return nil, false, err
	}
	var rows []session
	if owner == "" {
		rows, more, err = s.Store.latest(ctx, s.Idle, s.People)
	} else {
		rows, err = s.Store.owned(ctx, owner) // no more than maxPerKey
	}
	if err != nil {
		return nil, false, err
	}
	now := s.Store.Now()
	callers := map[string]forebay.Caller{}
	for _, row := range rows {
		if !row.expiresAt.After(now) || !row.usedAt.Add(s.Idle).After(now) {
			continue
		}
		one := forebay.SignIn{ID: idOf(row.hash), Owner: row.owner(), CreatedAt: row.createdAt, UsedAt: row.usedAt, ExpiresAt: row.expiresAt}
		if row.keyID == "" {
			if !s.People {
				continue
			}
			one.Tenant, one.Scopes = row.person.Tenant, row.person.Scopes
		} else {
			caller, known := callers[row.keyID]
			if !known {
				caller, err = s.Keys.CallerOf(ctx, row.keyID)
				if err != nil && forebay.CodeOf(err) != forebay.CodeUnauthorized {
					return nil, false, err
				}
				callers[row.keyID] = caller
			}
			if caller.KeyID == "" { // the key has ended, and its sessions with it
				continue
			}
			one.Tenant, one.Scopes = caller.Tenant, caller.Scopes
		}
		list = append(list, one)
	}
	return list, more, nil
}

// End ends the session with an id. CodeNotFound: there is none. Requests that come later are
// refused; another process may still take the session from memory for cacheFor. Streams
// of pages look whether their session counts each time they send something, at least every five
// seconds. A download that has begun goes on.
func (s *Service) End(ctx context.Context, id, actor string) error {
	prefix, err := hex.DecodeString(strings.TrimPrefix(id, idPrefix))
	if err != nil || len(prefix) != idBytes || id != idPrefix+hex.EncodeToString(prefix) {
		return forebay.ErrNotFound
	}
	row, found, err := s.Store.beginsWith(ctx, prefix)
	if err != nil {
		return err
	}
	if !found {
		return forebay.ErrNotFound
	}
	entry, err := s.ends(ctx, row, actor)
	if err != nil {
		return err
	}
	if err := s.Store.remove(ctx, row.hash, entry); err != nil {
		return err
	}
	s.forget([sha256.Size]byte(row.hash))
	return nil
}

// EndAll ends all sessions of an owner, who is a key's id or a person, and returns how many there
// were.
func (s *Service) EndAll(ctx context.Context, owner, actor string) (ended int, err error) {
	if owner == "" {
		return 0, forebay.Invalid("owner", "is missing: the id of a key, or a person such as person:ada@example.com")
	}
	if err := checkOwner(owner); err != nil {
		return 0, err
	}
	rows, err := s.Store.owned(ctx, owner)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	entry, err := s.ends(ctx, rows[0], actor)
	if err != nil {
		return 0, err
	}
	ended, err = s.Store.removeOf(ctx, owner, entry)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(_ [sha256.Size]byte, k known) bool { return k.found && k.row.owner() == owner })
	return ended, nil
}

// ends is what the audit log says of the end of a session, or of all of its owner. The tenant of
// a key is the key's, also after the key has ended.
func (s *Service) ends(ctx context.Context, row session, actor string) (entry audit.Act, err error) {
	tenant := row.person.Tenant
	if row.keyID != "" {
		tenant, err = s.Store.tenantOf(ctx, row.keyID)
	}
	return audit.Act{Tenant: tenant, Actor: actor, Action: "end-sign-in", Target: row.owner()}, err
}

// owner is whose session a row is, as lists tell it.
func (s session) owner() string {
	if s.keyID != "" {
		return s.keyID
	}
	return s.person.Actor()
}

// after is the greatest hash that begins with a prefix.
func after(prefix []byte) []byte {
	return append(bytes.Clone(prefix), bytes.Repeat([]byte{0xff}, sha256.Size-len(prefix))...)
}
