// Package payload keeps large payloads of jobs outside the database (claim check). A payload over
// the inline limit goes to blob storage, and the database keeps its key.
//
// The upload comes before the transaction that records its key. So a crash or a failed
// transaction leaves a blob that nothing refers to. Store removes such blobs: at once where it is
// certain, after some minutes where the transaction's fate is unknown, and by an hourly sweep.
//
// # When payloads are uploaded and removed
//
// An input or result over 64 KiB goes to blob storage before the transaction that refers to it.
// The key is new for each upload and made by Forebay alone. A settlement that is tried again
// uploads nothing again within half an hour. What is refused is removed at once; where nobody
// knows whether a transaction was made, the database is asked an hour later. How much output such
// an input asks for stays with the job, for admission. A crash in between leaves a blob that
// nobody refers to; a sweep at start-up and every hour removes those older than an hour.
package payload

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/memory"
)

// Options makes a Store.
type Options struct {
	Blobs *blob.Store
	// Recorded reports whether the job with that id refers to the key.
	Recorded func(ctx context.Context, id, key string) (bool, error)
	// Settled reports whether every transaction that may record a key has ended.
	Settled func(ctx context.Context) (bool, error)
	// InUse calls used with each of the keys that something refers to. ids maps a key to the id
	// of its job or document; orchestrations are keys of orchestrations.
	InUse func(ctx context.Context, ids map[string]string, orchestrations []string, used func(key string)) error
}

// Store keeps payloads. Its methods are safe for concurrent use.
type Store struct {
	Options
	mu       sync.Mutex
	doubtful []doubtful
}

// New returns a Store.
func New(o Options) *Store { return &Store{Options: o} }

// uploadTimeout is the longest that an upload takes. The sweep leaves blobs of the last hour
// alone.
const uploadTimeout = 5 * time.Minute

// Put stores a payload and returns what the database keeps of it: the bytes, or the key of a blob.
func (s *Store) Put(ctx context.Context, tenant int64, id, kind string, payload []byte) (inline []byte, key string, err error) {
	return s.PutOnce(ctx, &Upload{}, tenant, id, kind, payload)
}

// Upload is a payload that is put again with each attempt to record it.
type Upload struct {
	key    string    // "": it has not begun
	stored time.Time // when it was begun that succeeded; zero: none has
}

// uploadKept is for how long an upload is certain to be there, though nothing refers to it.
const uploadKept = sweptAfter / 2

// PutOnce is Put for an upload. Attempts have the same key, and only one stores the payload. One
// that could not be recorded for long may have been swept, and is stored again by another key.
func (s *Store) PutOnce(ctx context.Context, u *Upload, tenant int64, id, kind string, payload []byte) (inline []byte, key string, err error) {
	if len(payload) <= forebay.InlineBytes {
		return payload, "", nil
	}
	if !u.stored.IsZero() && time.Since(u.stored) >= uploadKept {
		*u = Upload{}
	}
	if u.key == "" { // a new key for each upload: a late one cannot change what another has recorded
		u.key = blob.Key(tenant, id, kind+"-"+ids.New(""))
	}
	if !u.stored.IsZero() {
		return nil, u.key, nil
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	if err := s.Blobs.Put(ctx, u.key, bytes.NewReader(payload), int64(len(payload))); err != nil {
		return nil, "", err
	}
	u.stored = begun
	return nil, u.key, nil
}

// Get returns a payload. One from blob storage counts in the context's claim of memory.
func (s *Store) Get(ctx context.Context, inline []byte, key string, size int64) ([]byte, error) {
	if key == "" {
		return inline, nil
	}
	if err := memory.Grow(ctx, size); err != nil {
		return nil, err
	}
	return s.Blobs.ReadAll(ctx, key, size)
}

// Open opens a payload in blob storage.
func (s *Store) Open(ctx context.Context, key string) (r io.ReadCloser, size int64, err error) {
	return s.Blobs.Get(ctx, key)
}

const removeTimeout = 10 * time.Second // of one payload

// Remove removes a payload that nothing refers to. If it fails, the sweep removes the payload.
func (s *Store) Remove(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	_ = s.Blobs.Delete(ctx, key)
}

// RemoveUnrecorded removes a payload unless the database refers to it. Every transaction that
// could record the payload must have ended. If it fails, the sweep removes the payload.
func (s *Store) RemoveUnrecorded(ctx context.Context, id, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if recorded, err := s.Recorded(ctx, id, key); err == nil && !recorded {
		_ = s.Blobs.Delete(ctx, key)
	}
}

const (
	maxDoubtful   = 10_000          // the sweep removes the others
	doubtfulAfter = 5 * time.Minute // by then the database has begun the transaction, or never will
)

// doubtful is a payload whose transaction failed in a way that leaves its fate unknown.
type doubtful struct {
	id, key string
	since   time.Time
}

// Doubt notes a payload that the database may or may not refer to.
func (s *Store) Doubt(id, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.doubtful) < maxDoubtful {
		s.doubtful = append(s.doubtful, doubtful{id, key, time.Now()})
	}
}

// RemoveDoubtful removes the payloads that were doubted five minutes or more before now and that
// the database does not refer to. They stay while the database cannot be read, or while a
// transaction is under way that may record them.
func (s *Store) RemoveDoubtful(ctx context.Context, now time.Time) (removed int, err error) {
	s.mu.Lock()
	all := s.doubtful
	s.doubtful = nil
	s.mu.Unlock()
	var stay []doubtful
	settled := false
	if slices.ContainsFunc(all, func(d doubtful) bool { return now.Sub(d.since) >= doubtfulAfter }) {
		settled, err = s.Settled(ctx)
	}
	for _, d := range all {
		if err != nil || !settled || now.Sub(d.since) < doubtfulAfter {
			stay = append(stay, d)
			continue
		}
		var recorded bool
		if recorded, err = s.Recorded(ctx, d.id, d.key); err == nil && !recorded {
			limited, cancel := context.WithTimeout(ctx, removeTimeout)
			err = s.Blobs.Delete(limited, d.key)
			cancel()
		}
		switch {
		case err != nil:
			stay = append(stay, d)
		case !recorded:
			removed++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubtful = append(stay, s.doubtful...)
	s.doubtful = s.doubtful[:min(len(s.doubtful), maxDoubtful)]
	return removed, err
}

// sweptAfter is how old a blob is that nothing refers to when the sweep removes it.
const sweptAfter = time.Hour

// Sweep removes blobs that nothing refers to and that are older than an hour: every transaction
// that could record them has begun by then. It removes nothing while such a transaction is still
// under way, for example because its commit waits for a standby.
func (s *Store) Sweep(ctx context.Context) (removed int, err error) {
	if settled, err := s.Settled(ctx); err != nil || !settled {
		if err == nil {
			err = forebay.Errorf(forebay.CodeUnavailable, "a transaction of the database is under way; blobs are swept once it is over")
		}
		return 0, err
	}
	return s.Blobs.Sweep(ctx, time.Now().Add(-sweptAfter), func(keys []string) (map[string]bool, error) {
		owners := map[string]string{}
		var orchestrations []string
		used := map[string]bool{}
		for _, key := range keys {
			switch parts := strings.Split(key, "/"); {
			case len(parts) == 4 && parts[0] == "t":
				owners[key] = parts[2]
			case len(parts) == 5 && parts[0] == "t" && parts[2] == orchestrationBlobs:
				orchestrations = append(orchestrations, key)
			default:
				used[key] = true // no key of ours: leave it
			}
		}
		err := s.InUse(ctx, owners, orchestrations, func(key string) { used[key] = true })
		return used, err
	})
}

// orchestrationBlobs is the second segment of the keys of orchestrations. No job has such an id.
const orchestrationBlobs = "orchestrations"
