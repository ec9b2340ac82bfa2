package responses

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/responses/bridge"
	"github.com/forebayhq/forebay/internal/seal"
)

// A compaction is not stored here: the client keeps it, sealed. All processes seal with the same
// key, which the database has. It is bound to the tenant.

const (
	secretName   = "compactions"
	secretBytes  = 32
	sqlSecret    = "SELECT secret FROM secrets WHERE name = ?"
	sqlAddSecret = "INSERT INTO secrets (name, secret) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
)

// Secret returns the secret that compactions are sealed with. The first to ask for it makes it.
func (s *Store) Secret(ctx context.Context) (secret []byte, err error) {
	read := func(c driver.Conn) error {
		_, err := c.Prep(sqlSecret).Text(secretName).One(func(r driver.Row) { secret = r.Blob(0) })
		return err
	}
	if err := s.Read(ctx, read); err != nil || secret != nil {
		return secret, err
	}
	return db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(t *tx) ([]byte, error) {
		made := make([]byte, secretBytes)
		_, _ = rand.Read(made) // it never fails
		if err := t.Prep(sqlAddSecret).Text(secretName).Blob(made).Exec(); err != nil {
			return nil, err
		}
		err := read(t.Conn)
		return secret, err
	})
}

// aead returns what seals compactions.
func (s *Service) aead(ctx context.Context) (cipher.AEAD, error) {
	if known := s.seal.Load(); known != nil {
		return *known, nil
	}
	secret, err := s.Store.Secret(ctx)
	if err != nil {
		return nil, err
	}
	made, err := seal.New(secret, "forebay compaction 1")
	if err == nil {
		s.seal.Store(&made)
	}
	return made, err
}

// bound is what a compaction is bound to.
func bound(tenant int64) []byte { return strconv.AppendInt(nil, tenant, 10) }

// Sealer returns what seals a summary so that only this server can read it, and only for the same
// tenant.
func (s *Service) Sealer(ctx context.Context, tenant string) (seal func(summary string) string, err error) {
	no, err := s.Store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	aead, err := s.aead(ctx)
	if err != nil {
		return nil, err
	}
	return func(summary string) string {
		return bridge.SealedPrefix + base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, []byte(summary), bound(no)))
	}, nil
}

// errSealed refuses a compaction as OpenAI's server does.
var errSealed = &bridge.Error{Code: "invalid_encrypted_content", Message: "The encrypted content of a compaction could not be verified: it was changed, or is another organization's."}

// unsealed returns what a compaction of this server's stands for. Other items are as they are.
func (s *Service) unsealed(ctx context.Context, tenant int64, item json.RawMessage) (json.RawMessage, error) {
	if gjson.GetBytes(item, "type").Str != "compaction" {
		return item, nil
	}
	text, ours := strings.CutPrefix(gjson.GetBytes(item, "encrypted_content").Str, bridge.SealedPrefix)
	if !ours {
		return item, nil
	}
	if err := memory.Grow(ctx, int64(2*len(text))); err != nil {
		return nil, err
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errSealed
	}
	aead, err := s.aead(ctx)
	if err != nil {
		return nil, err
	}
	summary, err := aead.Open(nil, nil, sealed, bound(tenant))
	if err != nil {
		return nil, errSealed
	}
	return bridge.Summary(string(summary)), nil
}
