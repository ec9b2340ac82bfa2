package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
)

// Defaults of Options.
const (
	DefaultLifetime = 12 * time.Hour
	DefaultIdle     = time.Hour
)

const (
	tokenBytes = 32
	// cacheFor is how long a session is taken from memory: one that ended elsewhere stops
	// within it.
	cacheFor  = time.Second
	maxCached = 10_000
	// useEvery is how often the use of a session is written.
	useEvery = time.Minute
)

// ErrSignedOut refuses a session that is unknown or has ended.
var ErrSignedOut = forebay.Errorf(forebay.CodeUnauthorized, "sign in: there is no session, or it has ended")

// Keys knows API keys.
type Keys interface {
	Authenticate(ctx context.Context, key string) (caller forebay.Caller, open bool, err error)
	CallerOf(ctx context.Context, id string) (forebay.Caller, error)
}

// Options configures a Service.
type Options struct {
	Store    *Store
	Keys     Keys
	Lifetime time.Duration // of a session; 0: DefaultLifetime
	Idle     time.Duration // a session that nobody uses ends after it; 0: DefaultIdle
	People   bool          // people sign in too; without it no session of theirs counts
}

// Service begins, checks and ends sessions. Its methods are safe for concurrent use.
type Service struct {
	Options

	mu    sync.Mutex
	known map[[sha256.Size]byte]known
}

type known struct {
	row     session
	found   bool
	expires time.Time // from memory
}

// New returns a service.
func New(o Options) *Service {
	if o.Lifetime <= 0 {
		o.Lifetime = DefaultLifetime
	}
	if o.Idle <= 0 {
		o.Idle = DefaultIdle
	}
	return &Service{Options: o, known: map[[sha256.Size]byte]known{}}
}

// WithKey exchanges an API key for a session and returns the session's token. CodeUnauthorized
// does not say what is wrong with the key. CodeForbidden: it may not read.
func (s *Service) WithKey(ctx context.Context, key string) (token string, err error) {
	caller, open, err := s.Keys.Authenticate(ctx, key)
	if err != nil {
		return "", err
	}
	if open || caller.KeyID == "" {
		return "", ErrSignedOut
	}
	if !caller.May(forebay.ScopeRead) {
		return "", forebay.Errorf(forebay.CodeForbidden, "the dashboard needs a key with the scope %q or %q", forebay.ScopeRead, forebay.ScopeView)
	}
	return s.begin(ctx, session{keyID: caller.KeyID}, audit.Act{Tenant: caller.Tenant, Actor: caller.KeyID, Action: "sign-in", Target: "dashboard"})
}

// AsPerson begins a session of somebody whom an OpenID Connect provider vouches for.
// CodeForbidden: the person may not read.
func (s *Service) AsPerson(ctx context.Context, p Person) (token string, err error) {
	if p.Name == "" || !s.People {
		return "", ErrSignedOut
	}
	if !(forebay.Caller{Scopes: p.Scopes}).May(forebay.ScopeRead) {
		return "", forebay.Errorf(forebay.CodeForbidden, "the dashboard needs a role with the scope %q or %q", forebay.ScopeRead, forebay.ScopeView)
	}
	return s.begin(ctx, session{person: p}, audit.Act{Tenant: p.Tenant, Actor: p.Actor(), Action: "sign-in", Target: "dashboard", Detail: p.Detail})
}

func (s *Service) begin(ctx context.Context, row session, entry audit.Act) (string, error) {
	var secret [tokenBytes]byte
	rand.Read(secret[:])
	token := base64.RawURLEncoding.EncodeToString(secret[:])
	hash := sha256.Sum256([]byte(token))
	row.hash = hash[:]
	return token, s.Store.insert(ctx, row, s.Lifetime, entry)
}

// Caller returns whose session a token is, or ErrSignedOut. The caller expires with the session.
// use says that somebody uses it, so that its idle time begins anew.
func (s *Service) Caller(ctx context.Context, token string, use bool) (forebay.Caller, error) {
	if len(token) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return forebay.Caller{}, ErrSignedOut
	}
	hash := sha256.Sum256([]byte(token))
	row, found, err := s.look(ctx, hash)
	if err != nil {
		return forebay.Caller{}, err
	}
	now := s.Store.Now()
	if !found || !row.expiresAt.After(now) || !row.usedAt.Add(s.Idle).After(now) {
		return forebay.Caller{}, ErrSignedOut
	}
	if use && now.Sub(row.usedAt) >= min(useEvery, s.Idle/2) {
		// A database that cannot be written is what the dashboard may be needed for.
		if err := s.Store.use(ctx, hash[:]); err == nil {
			s.forget(hash)
		}
	}
	end := s.Store.ToLocal(row.expiresAt)
	if row.keyID == "" {
		if !s.People {
			return forebay.Caller{}, ErrSignedOut
		}
		return forebay.Caller{KeyID: row.person.Actor(), Tenant: row.person.Tenant, Scopes: row.person.Scopes, ExpiresAt: end}, nil
	}
	caller, err := s.Keys.CallerOf(ctx, row.keyID)
	if forebay.CodeOf(err) == forebay.CodeUnauthorized {
		err = ErrSignedOut
	}
	if caller.ExpiresAt.IsZero() || end.Before(caller.ExpiresAt) {
		caller.ExpiresAt = end
	}
	return caller, err
}

// Forget ends a session. It is no error if there is none.
func (s *Service) Forget(ctx context.Context, token string, caller forebay.Caller) error {
	hash := sha256.Sum256([]byte(token))
	err := s.Store.remove(ctx, hash[:], audit.Act{Tenant: caller.Tenant, Actor: caller.KeyID, Action: "sign-out", Target: "dashboard"})
	s.forget(hash)
	return err
}

func (s *Service) look(ctx context.Context, hash [sha256.Size]byte) (session, bool, error) {
	s.mu.Lock()
	k, ok := s.known[hash]
	s.mu.Unlock()
	if ok && time.Now().Before(k.expires) {
		return k.row, k.found, nil
	}
	row, found, err := s.Store.get(ctx, hash[:])
	if err != nil {
		return session{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxCached {
		now := time.Now()
		maps.DeleteFunc(s.known, func(_ [sha256.Size]byte, k known) bool { return now.After(k.expires) })
	}
	if len(s.known) < maxCached {
		s.known[hash] = known{row, found, time.Now().Add(cacheFor)}
	}
	return row, found, nil
}

func (s *Service) forget(hash [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, hash)
}
