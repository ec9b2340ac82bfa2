package keys

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/limits"
)

// keyPrefix marks an API key, so that a leaked one can be recognised by scanners.
const keyPrefix = "fb_"

// IsKey reports whether a text looks like an API key.
func IsKey(s string) bool { return strings.HasPrefix(s, keyPrefix) }

// cacheFor is how long a key is taken from memory: a revoked key stops working within it.
const cacheFor = time.Second

// Service makes, checks and revokes API keys. Its methods are safe for concurrent use and return
// *forebay.Error values for what a caller did wrong.
type Service struct {
	store  *Store
	limits *limits.Meter // nil: no tenant has limits
	cache  cache
	open   opened
	uses   uses
}

// NewService returns the service of a store. limits may be nil.
func NewService(store *Store, limits *limits.Meter) *Service {
	s := &Service{store: store, limits: limits}
	store.OnChange(func() {
		s.cache.clear()
		s.open.schedule(0, s.poll)
	})
	return s
}

type cache struct {
	mu      sync.Mutex
	entries map[[32]byte]cached
}

type cached struct {
	caller  forebay.Caller
	signing []byte // of a key that was looked up by its id
	open    bool
	err     error
	expires time.Time
}

// maxCachedKeys bounds the cache against a flood of wrong keys.
const maxCachedKeys = 10_000

// Create makes an API key and returns it with the key itself, which is stored only as a hash. A
// key has 160 random bits, so its plain SHA-256 cannot be reversed by guessing. Entities bind it,
// see [forebay.Caller.Reaches]; it then has message scopes only. A key with any of these scopes is
// also stored as what checks the tokens that it signs, see Signed.
func (s *Service) Create(ctx context.Context, tenant string, scopes []forebay.Scope, expires *time.Time, budget forebay.Budget, actor string, entities ...string) (forebay.APIKey, error) {
	if !forebay.ValidName(tenant) {
		return forebay.APIKey{}, forebay.Invalid("tenant", "is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'")
	}
	if len(scopes) == 0 {
		return forebay.APIKey{}, forebay.Invalid("scopes", "needs at least one of %s", scopeNames())
	}
	for _, scope := range scopes {
		if !scope.Valid() {
			return forebay.APIKey{}, forebay.Invalid("scopes", "%.40q is none of %s", string(scope), scopeNames())
		}
	}
	entities, err := checkEntities(entities, scopes)
	if err != nil {
		return forebay.APIKey{}, err
	}
	now := s.store.Now()
	if expires != nil && !expires.After(now) {
		return forebay.APIKey{}, forebay.Invalid("expires_at", "has passed already")
	}
	if err := budget.Check("budget."); err != nil {
		return forebay.APIKey{}, err
	}
	if expires != nil {
		at := expires.UTC().Truncate(time.Millisecond) // as it is stored
		expires = &at
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return forebay.APIKey{}, err
	}
	done, err := s.limits.Take(ctx, tenant, forebay.LimitKeys, 1)
	if err != nil {
		return forebay.APIKey{}, err
	}
	defer done()
	var secret [20]byte
	rand.Read(secret[:])
	key := forebay.APIKey{ID: ids.New("key_"), Tenant: tenant, Scopes: scopes, Entities: entities, CreatedAt: now.Truncate(time.Millisecond), ExpiresAt: expires}
	if !budget.Empty() {
		key.Budget = &budget
	}
	plain := keyPrefix + ids.Encoding.EncodeToString(secret[:])
	hash := sha256.Sum256([]byte(plain))
	var signing []byte
	if key.SignsTokens = slices.ContainsFunc(scopes, forebay.Scope.ForMessages); key.SignsTokens {
		if signing, err = signingState(plain); err != nil {
			return forebay.APIKey{}, err
		}
	}
	audit := audit.Act{Tenant: tenant, Actor: actor, Action: "create-key", Target: key.ID, Detail: keyDetail(key)}
	s.open.keep(ctx)
	if err := s.store.Insert(ctx, key, no, hash[:], signing, audit); err != nil {
		return forebay.APIKey{}, err
	}
	s.cache.clear() // the first key closes the server
	s.open.end("")
	key.Key = plain
	return key, nil
}

func scopeNames() string {
	names := make([]string, len(forebay.Scopes))
	for i, scope := range forebay.Scopes {
		names[i] = string(scope)
	}
	return strings.Join(names, ", ")
}

// keyDetail is what the audit log keeps of a new key.
func keyDetail(key forebay.APIKey) string {
	b, err := json.Marshal(struct {
		Scopes      []forebay.Scope `json:"scopes"`
		Entities    []string        `json:"entities,omitempty"`
		SignsTokens bool            `json:"signs_tokens,omitempty"`
		ExpiresAt   *time.Time      `json:"expires_at,omitempty"`
		Budget      *forebay.Budget `json:"budget,omitempty"`
	}{key.Scopes, key.Entities, key.SignsTokens, key.ExpiresAt, key.Budget})
	if err != nil {
		return ""
	}
	return string(b)
}

// List returns all API keys, oldest first, without the keys themselves.
func (s *Service) List(ctx context.Context) ([]forebay.APIKey, error) { return s.store.List(ctx) }

// Revoke is idempotent; an unknown id is CodeNotFound.
func (s *Service) Revoke(ctx context.Context, id, actor string) (forebay.APIKey, error) {
	key, err := s.store.Revoke(ctx, id, audit.Act{Actor: actor, Action: "revoke-key", Target: id})
	s.cache.clear()
	if err == nil {
		s.open.end(id)
	}
	return key, err
}

// SetBudget replaces the budget of an API key. It counts jobs that are submitted with the key
// from then on.
func (s *Service) SetBudget(ctx context.Context, id string, budget forebay.Budget, actor string) (forebay.APIKey, error) {
	if err := budget.Check(""); err != nil {
		return forebay.APIKey{}, err
	}
	key, err := s.store.SetKeyBudget(ctx, id, budget, audit.Act{Actor: actor, Action: "set-budget", Target: id, Detail: admission.BudgetDetail(budget)})
	s.cache.clear()
	return key, err
}

// Authenticate returns whose key this is; CodeUnauthorized if it is unknown, expired or revoked.
// While no key exists at all, the empty key is the default tenant with every scope (open is
// true).
func (s *Service) Authenticate(ctx context.Context, key string) (caller forebay.Caller, open bool, err error) {
	hash := sha256.Sum256([]byte(key))
	c, ok := s.cache.get(hash)
	if !ok {
		if c, err = s.lookUp(ctx, key, hash); err != nil {
			return forebay.Caller{}, false, err
		}
		s.cache.put(hash, c)
	}
	if c.err == nil && c.caller.KeyID != "" {
		s.uses.note(c.caller.KeyID, s.store.Now(), s.writeUses)
	}
	return c.caller, c.open, c.err
}

// CallerOf returns whom the key of that id makes, as Authenticate does for the key itself. It is
// CodeUnauthorized if the key is unknown, expired or revoked.
func (s *Service) CallerOf(ctx context.Context, id string) (forebay.Caller, error) {
	c, err := s.byID(ctx, id)
	if err != nil {
		return forebay.Caller{}, err
	}
	return c.caller, c.err
}

func (s *Service) byID(ctx context.Context, id string) (cached, error) {
	place := sha256.Sum256([]byte("id " + id)) // no key begins like this
	c, ok := s.cache.get(place)
	if !ok {
		row, signing, found, err := s.store.ByID(ctx, id)
		if err != nil {
			return cached{}, err
		}
		c = s.callerOf(row, found)
		c.signing = signing
		s.cache.put(place, c)
	}
	return c, nil
}

var errUnauthorized = forebay.Errorf(forebay.CodeUnauthorized, "the API key is missing, unknown, expired or revoked")

func (s *Service) lookUp(ctx context.Context, key string, hash [32]byte) (cached, error) {
	row, found, anyKey, err := s.store.ByHash(ctx, hash[:])
	if err != nil {
		return cached{}, err
	}
	if key == "" && !anyKey {
		return cached{expires: time.Now().Add(cacheFor), open: true,
			caller: forebay.Caller{Tenant: forebay.DefaultTenant, Scopes: forebay.Scopes}}, nil
	}
	return s.callerOf(row, found && strings.HasPrefix(key, keyPrefix)), nil
}

// callerOf judges a key that was looked up.
func (s *Service) callerOf(key forebay.APIKey, found bool) cached {
	c := cached{expires: time.Now().Add(cacheFor)}
	if !found || key.RevokedAt != nil || key.ExpiresAt != nil && !key.ExpiresAt.After(s.store.Now()) {
		c.err = errUnauthorized
		return c
	}
	c.caller = forebay.Caller{KeyID: key.ID, Tenant: key.Tenant, Scopes: key.Scopes, Budgeted: key.Budget != nil, Entities: key.Entities}
	if key.ExpiresAt != nil {
		c.caller.ExpiresAt = s.store.ToLocal(*key.ExpiresAt)
		if c.caller.ExpiresAt.Before(c.expires) {
			c.expires = c.caller.ExpiresAt
		}
	}
	return c
}

func (k *cache) get(hash [32]byte) (cached, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.entries[hash]
	return c, ok && time.Now().Before(c.expires)
}

func (k *cache) put(hash [32]byte, c cached) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.entries == nil || len(k.entries) >= maxCachedKeys {
		k.entries = map[[32]byte]cached{}
	}
	k.entries[hash] = c
}

// forget drops a key by its id.
func (k *cache) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.entries, func(_ [32]byte, c cached) bool { return c.caller.KeyID == id })
}

func (k *cache) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.entries = nil
}
