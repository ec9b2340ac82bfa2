package keys

import (
	"context"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// keyPoll is how often this process looks for keys that were revoked elsewhere, while anything is open under a key. Processes that share
// a PostgreSQL database also tell each other.
const keyPoll = 500 * time.Millisecond

// revokedWithin is how far back a look goes: a revocation is seen some time after its own, and what is open may have begun after it,
// with a key out of memory.
const revokedWithin = 10 * time.Minute

// opened is what is open under keys: requests, streams, calls.
type opened struct {
	mu    sync.Mutex
	byKey map[string]map[*hold]struct{} // "": opened while there was no key
	next  *time.Timer                   // of the next look; nil: none is to be taken
}

type hold struct{ end context.CancelCauseFunc }

// Hold returns a context for what a caller has opened. It ends, with an error of [forebay.CodeUnauthorized] as its cause, when the
// caller's key expires or is revoked by whatever process, within about a second; for a caller without a key, when there is a first one. Release is to
// be called when it is closed.
func (s *Service) Hold(ctx context.Context, caller forebay.Caller) (held context.Context, release func()) {
	held, end := context.WithCancelCause(ctx)
	var expiry *time.Timer
	if !caller.ExpiresAt.IsZero() {
		expiry = time.AfterFunc(time.Until(caller.ExpiresAt), func() { end(errUnauthorized) })
	}
	h := &hold{end}
	s.open.add(caller.KeyID, h)
	s.open.schedule(keyPoll, s.poll)
	return held, func() {
		if expiry != nil {
			expiry.Stop()
		}
		s.open.remove(caller.KeyID, h)
		end(context.Canceled)
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

// schedule has the next look taken after a while, unless nothing is open. One that is to be taken anyway may only become earlier.
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

// looked notes that a look is over.
func (o *opened) looked() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = nil
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

// poll looks once, and again later if anything is still open.
func (s *Service) poll() {
	ctx, cancel := context.WithTimeout(context.Background(), keyPollTime)
	s.endRevoked(ctx)
	cancel()
	s.open.looked()
	s.open.schedule(keyPoll, s.poll)
}

// keyPollTime bounds one look.
const keyPollTime = 5 * time.Second

// endRevoked ends what is open under keys that were revoked lately. While the database cannot be read nobody can know of a revocation:
// the next look finds it.
func (s *Service) endRevoked(ctx context.Context) {
	revoked, anyKey, err := s.store.Revoked(ctx, s.store.Now().Add(-revokedWithin))
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
}
