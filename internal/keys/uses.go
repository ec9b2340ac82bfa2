package keys

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/db"
)

// Use is when a key was used.
type Use struct {
	Key string
	At  time.Time
}

const (
	usesEvery   = time.Minute     // between two writes
	usesSoonest = time.Second     // after the first use in a while
	usesTimeout = 5 * time.Second // of one write
	usesAtOnce  = 500             // keys that one transaction writes
)

// uses is when keys were used since that was last written.
type uses struct {
	mu      sync.Mutex
	latest  map[string]time.Time
	due     bool      // a write is scheduled, or under way
	written time.Time // when the last write began, by this process's clock
}

// note records a use, and has it written some time later.
func (u *uses) note(key string, at time.Time, write func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.latest == nil {
		u.latest = map[string]time.Time{}
	}
	if u.latest[key].Before(at) {
		u.latest[key] = at
	}
	u.schedule(write)
}

func (u *uses) schedule(write func()) {
	if u.due || len(u.latest) == 0 {
		return
	}
	u.due = true
	time.AfterFunc(max(usesSoonest, time.Until(u.written.Add(usesEvery))), write)
}

// take returns what is to be written, in the order of the keys, so that two processes do not wait
// for each other's rows.
func (u *uses) take() []Use {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := make([]Use, 0, len(u.latest))
	for key, at := range u.latest {
		list = append(list, Use{key, at})
	}
	slices.SortFunc(list, func(a, b Use) int { return strings.Compare(a.Key, b.Key) })
	u.latest, u.written = nil, time.Now()
	return list
}

// done notes that a write is over. What it has not written is written the next time.
func (u *uses) done(failed []Use, write func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, use := range failed {
		if u.latest == nil {
			u.latest = map[string]time.Time{}
		}
		if u.latest[use.Key].Before(use.At) {
			u.latest[use.Key] = use.At
		}
	}
	u.due = false
	u.schedule(write)
}

// writeUses writes what was noted. No request waits for it.
func (s *Service) writeUses() {
	left := s.uses.take()
	for len(left) > 0 {
		part := left[:min(len(left), usesAtOnce)]
		ctx, cancel := context.WithTimeout(context.Background(), usesTimeout)
		err := s.store.NoteUses(ctx, part)
		cancel()
		if errors.Is(err, db.ErrClosed) {
			return // for good
		}
		if err != nil {
			break
		}
		left = left[len(part):]
	}
	s.uses.done(left, s.writeUses)
}
