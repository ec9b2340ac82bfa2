package documents

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/store"
	"github.com/forebayhq/forebay/internal/vector"
)

// indexes are the codes of tenants' vectors in memory. They are a hint: before each search what went live
// since is read from the store, and what was dropped is taken out when the store tells of it. What another process has
// dropped just now is found out by whoever looks for it in the store.
type indexes struct {
	limit int64 // bytes
	watch func(tenant int64) (drops <-chan struct{}, stop func())

	mu       sync.Mutex
	byTenant map[int64]*tenantIndex
}

type tenantIndex struct {
	mu    sync.RWMutex
	index *vector.Index     // nil: nothing was read
	begin int64             // it has what went live after this number
	after int64             // up to this one
	went  map[int64][]int64 // chunks by the number under which their revision went live
	stale bool              // something was dropped that may be in it
	drops <-chan struct{}
	stop  func()    // of drops
	used  time.Time // guarded by indexes.mu
	bytes int64     // the same
}

// of returns a tenant's index. The ones that were not used for longest go when there are too many.
func (x *indexes) of(tenant int64) *tenantIndex {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.byTenant[tenant]
	if t == nil {
		t = &tenantIndex{}
		t.drops, t.stop = x.watch(tenant)
		x.byTenant[tenant] = t
	}
	t.used = time.Now()
	for {
		total, oldest := int64(0), int64(0)
		for no, other := range x.byTenant {
			total += other.bytes
			if other != t && (oldest == 0 || other.used.Before(x.byTenant[oldest].used)) {
				oldest = no
			}
		}
		if total <= x.limit || oldest == 0 {
			return t
		}
		x.byTenant[oldest].stop()
		delete(x.byTenant, oldest)
	}
}

// nearest returns chunks that are thought to be nearest to a unit vector: up to n of what the database's own
// index has, if it has one, and up to n of what that has not.
func (t *tenantIndex) nearest(ctx context.Context, s *Service, tenant int64, unit []float32, n int) ([]int64, error) {
	indexed, until, err := s.Store.IndexedNearest(ctx, tenant, unit, n)
	if err != nil {
		return nil, err
	}
	if err := t.refresh(ctx, s, tenant, len(unit), until); err != nil {
		return nil, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	found, err := t.index.Nearest(unit, n)
	if errors.Is(err, vector.ErrLength) { // somebody has begun with vectors of another dimension
		return nil, nil
	}
	for _, chunk := range indexed {
		if !slices.Contains(found, chunk) {
			found = append(found, chunk)
		}
	}
	return found, err
}

// maxOverlap is how many codes are kept at most of what the database's index has as well.
const maxOverlap = 50_000

// refresh takes out what was dropped and reads what went live since the last time, and after that number at the earliest.
func (t *tenantIndex) refresh(ctx context.Context, s *Service, tenant int64, dimensions int, until int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index == nil || t.index.Dimension() != dimensions || until > t.after || t.index.Len() > maxOverlap && until > t.begin {
		t.index, t.begin, t.after, t.went = vector.NewIndex(dimensions), until, until, map[int64][]int64{}
	}
	if err := t.drop(ctx, s, tenant); err != nil {
		return err
	}
	for {
		codes, err := s.Store.Codes(ctx, tenant, t.after)
		if err != nil || len(codes) == 0 {
			return err
		}
		t.add(codes)
		s.indexes.mu.Lock()
		t.bytes = t.index.Bytes() + 8*int64(t.index.Len()) // and went
		s.indexes.mu.Unlock()
	}
}

func (t *tenantIndex) add(codes []store.LiveCode) {
	for _, c := range codes {
		t.after = c.Live
		if t.index.Add(c.Chunk, c.Code) == nil { // one of another dimension belongs to what is being removed
			t.went[c.Live] = append(t.went[c.Live], c.Chunk)
		}
	}
}

// drop takes out what is not live any more, if the store has told that something was dropped.
func (t *tenantIndex) drop(ctx context.Context, s *Service, tenant int64) error {
	select {
	case <-t.drops:
		t.stale = true
	default:
	}
	if !t.stale || t.index.Len() == 0 {
		return nil
	}
	live, err := s.Store.LiveNumbers(ctx, tenant)
	if err != nil {
		return err
	}
	t.stale = false
	gone := map[int64]bool{}
	for number, chunks := range t.went {
		if live[number] {
			continue
		}
		for _, chunk := range chunks {
			gone[chunk] = true
		}
		delete(t.went, number)
	}
	if len(gone) > 0 {
		t.index.Remove(gone)
	}
	return nil
}

// forget takes chunks out that no search finds any more.
func (t *tenantIndex) forget(gone map[int64]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index != nil {
		t.index.Remove(gone)
	}
}
