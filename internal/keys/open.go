package keys

import (
	"context"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// keyPoll is how often this process looks for keys that another process revoked, while anything
// is open under a key. Processes that share a PostgreSQL database also notify each other.
const keyPoll = 500 * time.Millisecond

// revokedWithin is how far back that reads, from the last time that it could. A revocation can be
// seen some time after its own time, and a cached key can open something after it.
const revokedWithin = 10 * time.Minute

// opened is what is open under keys: requests, streams, calls.
type opened struct {
	mu    sync.Mutex
	byKey map[string]map[*hold]struct{} // "": opened while there was no key
	next  *time.Timer                   // of the next read; nil: none is due
	known time.Time                     // when revocations were last read, or were to be read first
}

type hold struct{ end context.CancelCauseFunc }

// holdKey finds the hold of a context.
type holdKey struct{}

// Hold returns a context for what a caller has opened. It ends when the caller's key expires or
// any process revokes it, within about a second. For a caller without a key it ends when the
// first key is made. Its cause is an error of [forebay.CodeUnauthorized]. release must be called
// when it is closed.
func (s *Service) Hold(ctx context.Context, caller forebay.Caller) (held context.Context, release func()) {
	held, end := context.WithCancelCause(ctx)
	var expiry *time.Timer
	if !caller.ExpiresAt.IsZero() {
		expiry = time.AfterFunc(time.Until(caller.ExpiresAt), func() { end(errUnauthorized) })
	}
	h := &hold{end}
	s.open.add(caller.KeyID, h)
	s.open.schedule(keyPoll, s.poll)
	return context.WithValue(held, holdKey{}, h), func() {
		if expiry != nil {
			expiry.Stop()
		}
		s.open.remove(caller.KeyID, h)
		end(context.Canceled)
	}
}

// keep lets go on what makes the first key. Otherwise it would end with all that has none, and its
// caller would not learn the key.
func (o *opened) keep(ctx context.Context) {
	if h, ok := ctx.Value(holdKey{}).(*hold); ok {
		o.remove("", h)
	}
}

func (o *opened) add(key string, h *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byKey == nil {
		o.byKey = map[string]map[*hold]struct{}{}
	}
	if o.byKey[key] == nil {
		o.byKey[key] = map[*hold]struct{}{}
	}
	o.byKey[key][h] = struct{}{}
}

func (o *opened) remove(key string, h *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.byKey[key], h); len(o.byKey[key]) == 0 {
		delete(o.byKey, key)
	}
}

// schedule has the next read made after a while, unless nothing is open. It makes a scheduled
// read only earlier.
func (o *opened) schedule(after time.Duration, look func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.byKey) == 0:
	case o.next == nil:
		o.next = time.AfterFunc(after, look)
	case after == 0:
		o.next.Reset(0)
	}
}

// looked notes that a read is over.
func (o *opened) looked() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = nil
}

// since returns since when keys may have been revoked that nobody has read of yet.
func (o *opened) since(now time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known.IsZero() || now.Before(o.known) {
		o.known = now
	}
	return o.known.Add(-revokedWithin)
}

// knows notes that revocations up to a time were read.
func (o *opened) knows(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = now
}

// end ends all that is open under a key.
func (o *opened) end(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for h := range o.byKey[key] {
		h.end(errUnauthorized)
	}
}

// keyless reports whether something is open that was opened without a key.
func (o *opened) keyless() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.byKey[""]) > 0
}

// poll reads once, and again later if anything is still open.
func (s *Service) poll() {
	ctx, cancel := context.WithTimeout(context.Background(), keyPollTime)
	s.endRevoked(ctx)
	cancel()
	s.open.looked()
	s.open.schedule(keyPoll, s.poll)
}

// keyPollTime bounds one read.
const keyPollTime = 5 * time.Second

// endRevoked ends what is open under keys that were revoked lately. While the database cannot be
// read nobody can know of a revocation; the next read finds it, however late it comes.
func (s *Service) endRevoked(ctx context.Context) {
	now := s.store.Now()
	revoked, anyKey, err := s.store.Revoked(ctx, s.open.since(now))
	if err != nil {
		return
	}
	for _, key := range revoked {
		s.cache.forget(key)
		s.open.end(key)
	}
	if anyKey && s.open.keyless() {
		s.cache.clear()
		s.open.end("")
	}
	s.open.knows(now)
}
