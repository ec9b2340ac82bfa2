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
// since is read from the store, and what is not live any more is found out by whoever looks for it there.
type indexes struct {
	limit int64 // bytes

	mu       sync.Mutex
	byTenant map[int64]*tenantIndex
}

type tenantIndex struct {
	mu    sync.RWMutex
	index *vector.Index // nil: nothing was read
	begin int64         // it has what went live after this number
	after int64         // up to this one
	used  time.Time     // guarded by indexes.mu
	bytes int64         // the same
}

// of returns a tenant's index. The ones that were not used for longest go when there are too many.
func (x *indexes) of(tenant int64) *tenantIndex {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.byTenant[tenant]
	if t == nil {
		t = &tenantIndex{}
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

// refresh reads what went live since the last time, and after that number at the earliest.
func (t *tenantIndex) refresh(ctx context.Context, s *Service, tenant int64, dimensions int, until int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index == nil || t.index.Dimension() != dimensions || until > t.after || t.index.Len() > maxOverlap && until > t.begin {
		t.index, t.begin, t.after = vector.NewIndex(dimensions), until, until
	}
	for {
		codes, err := s.Store.Codes(ctx, tenant, t.after)
		if err != nil || len(codes) == 0 {
			return err
		}
		t.add(codes)
		s.indexes.mu.Lock()
		t.bytes = t.index.Bytes()
		s.indexes.mu.Unlock()
	}
}

func (t *tenantIndex) add(codes []store.LiveCode) {
	for _, c := range codes {
		_ = t.index.Add(c.Chunk, c.Code) // one of another dimension belongs to what is being removed
		t.after = c.Live
	}
}

// forget takes chunks out that no search finds any more.
func (t *tenantIndex) forget(gone map[int64]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index != nil {
		t.index.Remove(gone)
	}
}
