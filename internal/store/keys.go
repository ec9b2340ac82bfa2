package store

import (
	"context"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// wordKeys says that an API key was made or revoked.
const wordKeys wordKind = 'k'

// InsertKey stores an API key of a tenant by its hash, with its budget if it has one.
func (s *KeyStore) InsertKey(ctx context.Context, key forebay.APIKey, tenant int64, hash []byte, audit Audit) error {
	_, err := transactIn(ctx, auditKey, s.writer, op{stage: stageChange}, func(t *auditTx) (struct{}, error) {
		scopes := make([]string, len(key.Scopes))
		for i, scope := range key.Scopes {
			scopes[i] = string(scope)
		}
		var expires int64
		if key.ExpiresAt != nil {
			expires = key.ExpiresAt.UnixMilli()
		}
		err := t.prep("INSERT INTO api_keys (id, hash, tenant, scopes, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)").
			text(key.ID).blob(hash).text(key.Tenant).text(strings.Join(scopes, " ")).int(key.CreatedAt.UnixMilli()).intOrNull(expires).exec()
		if err != nil {
			return struct{}{}, err
		}
		t.notify(wordKeys, 0, 0, 0)
		if key.Budget != nil {
			if err := admissionKey.of(t.tx).setBudget(tenant, key.ID, *key.Budget, audit.Actor, nil); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, auditIn(t.tx, audit)
	})
	return err
}

const keyColumns = `
SELECT k.id, k.tenant, k.scopes, k.created_at, k.expires_at, k.revoked_at, ` + limitColumns + `
FROM api_keys k LEFT JOIN budgets b ON b.key_id = k.id `

func readKey(r row) forebay.APIKey {
	key := forebay.APIKey{ID: r.text(0), Tenant: r.text(1), CreatedAt: fromMillis(r.int(3)), ExpiresAt: fromMillisOrNil(r, 4), RevokedAt: fromMillisOrNil(r, 5)}
	b := budget{limits: readLimits(r, 6)}
	if !b.limitless() {
		stated := b.stated()
		key.Budget = &stated
	}
	for scope := range strings.FieldsSeq(r.text(2)) {
		key.Scopes = append(key.Scopes, forebay.Scope(scope))
	}
	return key
}

// Keys returns all API keys, oldest first.
func (s *KeyStore) Keys(ctx context.Context) (keys []forebay.APIKey, err error) {
	err = s.read(ctx, func(c conn) error {
		err := c.prep(keyColumns + "ORDER BY k.created_at, k.id").each(func(r row) error {
			keys = append(keys, readKey(r))
			return nil
		})
		return err
	})
	return keys, err
}

// RevokedKeys returns the ids of keys that were revoked since a time, and whether there is any key at all.
func (s *KeyStore) RevokedKeys(ctx context.Context, since time.Time) (ids []string, anyKey bool, err error) {
	err = s.read(ctx, func(c conn) error {
		err := c.prep("SELECT id FROM api_keys WHERE revoked_at >= ?").int(since.UnixMilli()).each(func(r row) error {
			ids = append(ids, r.text(0))
			return nil
		})
		if err != nil {
			return err
		}
		anyKey, err = c.prep("SELECT 1 FROM api_keys LIMIT 1").one(func(row) {})
		return err
	})
	return ids, anyKey, err
}

// KeyByHash returns the key with that hash, whatever its state, and whether any key exists at all.
func (s *KeyStore) KeyByHash(ctx context.Context, hash []byte) (key forebay.APIKey, found, any bool, err error) {
	err = s.read(ctx, func(c conn) error {
		if found, err = c.prep(keyColumns + "WHERE k.hash = ?").blob(hash).one(func(r row) { key = readKey(r) }); err != nil || found {
			any = found
			return err
		}
		any, err = c.prep("SELECT 1 FROM api_keys LIMIT 1").one(func(row) {})
		return err
	})
	return key, found, any, err
}

// RevokeKey ends a key; one already revoked keeps its time. The audit row gets the key's tenant.
func (s *KeyStore) RevokeKey(ctx context.Context, id string, audit Audit) (key forebay.APIKey, err error) {
	return transactIn(ctx, auditKey, s.writer, op{stage: stageChange}, func(t *auditTx) (forebay.APIKey, error) {
		revoked, err := t.prep("UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL").int(t.now).text(id).count()
		if err != nil {
			return forebay.APIKey{}, err
		}
		var key forebay.APIKey
		found, err := t.prep(keyColumns + "WHERE k.id = ?").text(id).one(func(r row) { key = readKey(r) })
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		if err != nil || revoked == 0 {
			return key, err
		}
		t.notify(wordKeys, 0, 0, 0)
		audit.Tenant = key.Tenant
		return key, auditIn(t.tx, audit)
	})
}

// SetKeyBudget sets the budget of a key. The audit row gets the key's tenant.
func (s *KeyStore) SetKeyBudget(ctx context.Context, id string, limits forebay.Budget, audit Audit) (key forebay.APIKey, err error) {
	return transactIn(ctx, auditKey, s.writer, op{stage: stageChange}, func(t *auditTx) (forebay.APIKey, error) {
		var tenant int64
		found, err := t.prep("SELECT t.no FROM api_keys k JOIN tenants t ON t.name = k.tenant WHERE k.id = ?").text(id).one(func(r row) { tenant = r.int(0) })
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		if err != nil {
			return forebay.APIKey{}, err
		}
		if err := admissionKey.of(t.tx).setBudget(tenant, id, limits, audit.Actor, nil); err != nil {
			return forebay.APIKey{}, err
		}
		var key forebay.APIKey
		if _, err := t.prep(keyColumns + "WHERE k.id = ?").text(id).one(func(r row) { key = readKey(r) }); err != nil {
			return key, err
		}
		audit.Tenant = key.Tenant
		return key, auditIn(t.tx, audit)
	})
}
