package keys

import (
	"context"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// wordKeys says that an API key was made or revoked.
var wordKeys = db.NewWordKind('k', db.ToAll)

const sqlInsert = `
INSERT INTO api_keys (id, hash, tenant, scopes, created_at, expires_at, entities, hmac_state) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`

// Insert stores an API key of a tenant by its hash, with its budget if it has one. state is nil
// for a key that signs no tokens.
func (s *Store) Insert(ctx context.Context, key forebay.APIKey, tenant int64, hash, state []byte, entry audit.Act) error {
	_, err := db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
		scopes := make([]string, len(key.Scopes))
		for i, scope := range key.Scopes {
			scopes[i] = string(scope)
		}
		var expires int64
		if key.ExpiresAt != nil {
			expires = key.ExpiresAt.UnixMilli()
		}
		err := t.Prep(sqlInsert).Text(key.ID).Blob(hash).Text(key.Tenant).Text(strings.Join(scopes, " ")).Int(key.CreatedAt.UnixMilli()).IntOrNull(expires).
			TextOrNull(strings.Join(key.Entities, " ")).Blob(state).Exec()
		if err != nil {
			return struct{}{}, err
		}
		t.Notify(wordKeys, 0, 0, 0)
		if key.Budget != nil {
			if err := admission.Key.Of(t).SetBudget(tenant, key.ID, *key.Budget, entry.Actor, nil); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, audit.Append(t, entry)
	})
	return err
}

const keyColumns = `
SELECT k.id, k.tenant, k.scopes, k.created_at, k.expires_at, k.revoked_at, ` + admission.LimitColumns + `, u.used_at, k.entities, k.hmac_state
FROM api_keys k LEFT JOIN budgets b ON b.key_id = k.id LEFT JOIN key_uses u ON u.id = k.id `

const (
	sqlByID   = keyColumns + "WHERE k.id = ?"
	sqlByHash = keyColumns + "WHERE k.hash = ?"
	sqlList   = keyColumns + "ORDER BY k.created_at, k.id"
)

// hmacColumn is the place of hmac_state among keyColumns.
const hmacColumn = 12

func readKey(r driver.Row) forebay.APIKey {
	key := forebay.APIKey{ID: r.Text(0), Tenant: r.Text(1), CreatedAt: driver.FromMillis(r.Int(3)), ExpiresAt: driver.FromMillisOrNil(r, 4), RevokedAt: driver.FromMillisOrNil(r, 5), LastUsedAt: driver.FromMillisOrNil(r, 10)}
	b := admission.Budget{Limits: admission.ReadLimits(r, 6)}
	if !b.Limitless() {
		stated := b.Stated()
		key.Budget = &stated
	}
	for scope := range strings.FieldsSeq(r.Text(2)) {
		key.Scopes = append(key.Scopes, forebay.Scope(scope))
	}
	key.Entities = strings.Fields(r.Text(11))
	key.ETag = forebay.ETagOf(key.ID, b.Limits, driver.Millis(key.RevokedAt))
	key.SignsTokens = len(r.Blob(hmacColumn)) > 0
	return key
}

// List returns all API keys, oldest first, with what was used of their budgets.
func (s *Store) List(ctx context.Context) (keys []forebay.APIKey, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		keys = nil
		budgets, err := admission.KeyBudgets(c)
		if err != nil {
			return err
		}
		return c.Prep(sqlList).Each(func(r driver.Row) error {
			key := readKey(r)
			if key.Budget != nil {
				key.BudgetUsage = budgets[key.ID].Usage
			}
			keys = append(keys, key)
			return nil
		})
	})
	return keys, err
}

// Revoked returns the ids of keys that were revoked since a time, and whether there is any
// key at all.
func (s *Store) Revoked(ctx context.Context, since time.Time) (ids []string, anyKey bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		err := c.Prep("SELECT id FROM api_keys WHERE revoked_at >= ?").Int(since.UnixMilli()).Each(func(r driver.Row) error {
			ids = append(ids, r.Text(0))
			return nil
		})
		if err != nil {
			return err
		}
		anyKey, err = c.Prep("SELECT 1 FROM api_keys LIMIT 1").One(func(driver.Row) {})
		return err
	})
	return ids, anyKey, err
}

// ByHash returns the key with that hash, whatever its state, and whether any key exists at all.
func (s *Store) ByHash(ctx context.Context, hash []byte) (key forebay.APIKey, found, any bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		if found, err = c.Prep(sqlByHash).Blob(hash).One(func(r driver.Row) { key = readKey(r) }); err != nil || found {
			any = found
			return err
		}
		any, err = c.Prep("SELECT 1 FROM api_keys LIMIT 1").One(func(driver.Row) {})
		return err
	})
	return key, found, any, err
}

// ByID returns the key with that id, whatever its state. signing is nil if it signs no tokens.
func (s *Store) ByID(ctx context.Context, id string) (key forebay.APIKey, signing []byte, found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		found, err = c.Prep(sqlByID).Text(id).One(func(r driver.Row) { key, signing = readKey(r), r.Blob(hmacColumn) })
		return err
	})
	return key, signing, found, err
}

// sqlNoteUse leaves a time that is less than a minute older. Another process may have written it.
var sqlNoteUse = driver.BatchForm(
	"INSERT INTO key_uses (id, used_at) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at WHERE key_uses.used_at <= excluded.used_at - 60000",
	"INSERT INTO key_uses (id, used_at) SELECT p1, p2 FROM %s ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at WHERE key_uses.used_at <= excluded.used_at - 60000")

// NoteUses records when keys were used last, unless that is known to the minute.
func (s *Store) NoteUses(ctx context.Context, uses []Use) error {
	_, err := db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
		for _, u := range uses {
			if err := t.Prep(sqlNoteUse).Text(u.Key).Int(u.At.UnixMilli()).Exec(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// Revoke ends a key; one already revoked keeps its time. The audit row gets the key's tenant.
func (s *Store) Revoke(ctx context.Context, id string, entry audit.Act) (key forebay.APIKey, err error) {
	return db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (forebay.APIKey, error) {
		revoked, err := t.Prep("UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL").Int(t.Now).Text(id).Count()
		if err != nil {
			return forebay.APIKey{}, err
		}
		var key forebay.APIKey
		found, err := t.Prep(sqlByID).Text(id).One(func(r driver.Row) { key = readKey(r) })
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		if err != nil || revoked == 0 {
			return key, err
		}
		t.Notify(wordKeys, 0, 0, 0)
		entry.Tenant = key.Tenant
		return key, audit.Append(t, entry)
	})
}

// SetKeyBudget sets the budget of a key. The audit row gets the key's tenant.
func (s *Store) SetKeyBudget(ctx context.Context, id string, limits forebay.Budget, entry audit.Act) (key forebay.APIKey, err error) {
	return db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (forebay.APIKey, error) {
		var tenant int64
		found, err := t.Prep("SELECT t.no FROM api_keys k JOIN tenants t ON t.name = k.tenant WHERE k.id = ?").Text(id).One(func(r driver.Row) { tenant = r.Int(0) })
		if err == nil && !found {
			err = forebay.ErrNotFound
		}
		if err != nil {
			return forebay.APIKey{}, err
		}
		if condition := forebay.ConditionOf(ctx); !condition.Empty() {
			var before forebay.APIKey
			if _, err := t.Prep(sqlByID).Text(id).One(func(r driver.Row) { before = readKey(r) }); err != nil {
				return before, err
			}
			if err := condition.Check(before.ETag); err != nil {
				return forebay.APIKey{}, err
			}
		}
		if err := admission.Key.Of(t).SetBudget(tenant, id, limits, entry.Actor, nil); err != nil {
			return forebay.APIKey{}, err
		}
		var key forebay.APIKey
		if _, err := t.Prep(sqlByID).Text(id).One(func(r driver.Row) { key = readKey(r) }); err != nil {
			return key, err
		}
		entry.Tenant = key.Tenant
		return key, audit.Append(t, entry)
	})
}
