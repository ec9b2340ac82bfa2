package documents

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/vector"
)

// indexes are the codes of tenants' vectors in memory. They are a hint: before each search what went live
// since is read from the store. When the store tells that something was dropped, all that is live is read to take the rest out, but
// not more often than every so often; meanwhile whoever searches looks for all that it was given in the store, and what is not
// live any more goes then. So it is with what another process has dropped just now.
type indexes struct {
	limit     int64         // bytes
	dropEvery time.Duration // between readings of all that is live
	watch     func(tenant int64) (drops <-chan struct{}, stop func())

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
	swept time.Time         // when all that is not live was last taken out
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
// index has, if it has one, and up to n of what that has not. stale: something was dropped that may be among them, unless fresh asks for
// what is live alone, which takes reading all that is.
func (t *tenantIndex) nearest(ctx context.Context, s *Service, tenant int64, unit []float32, n int, fresh bool) (found []int64, stale bool, err error) {
	indexed, until, err := s.Store.IndexedNearest(ctx, tenant, unit, n)
	if err != nil {
		return nil, false, err
	}
	if err := t.refresh(ctx, s, tenant, len(unit), until, fresh); err != nil {
		return nil, false, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	found, err = t.index.Nearest(unit, n)
	if errors.Is(err, vector.ErrLength) { // somebody has begun with vectors of another dimension
		return nil, false, nil
	}
	for _, chunk := range indexed {
		if !slices.Contains(found, chunk) {
			found = append(found, chunk)
		}
	}
	return found, t.stale, err
}

// maxOverlap is how many codes are kept at most of what the database's index has as well.
const maxOverlap = 50_000

// refresh takes out what was dropped and reads what went live since the last time, and after that number at the earliest.
func (t *tenantIndex) refresh(ctx context.Context, s *Service, tenant int64, dimensions int, until int64, fresh bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index == nil || t.index.Dimension() != dimensions || until > t.after || t.index.Len() > maxOverlap && until > t.begin {
		t.index, t.begin, t.after, t.went = vector.NewIndex(dimensions), until, until, map[int64][]int64{}
	}
	if err := t.drop(ctx, s, tenant, fresh); err != nil {
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

func (t *tenantIndex) add(codes []LiveCode) {
	for _, c := range codes {
		t.after = c.Live
		if t.index.Add(c.Chunk, c.Code) == nil { // one of another dimension belongs to what is being removed
			t.went[c.Live] = append(t.went[c.Live], c.Chunk)
		}
	}
}

// dropEvery is how often all that is live of a tenant is read at most, however much is dropped.
const dropEvery = 5 * time.Second

// drop takes out what is not live any more, if the store has told that something was dropped and it is time again, or at once.
func (t *tenantIndex) drop(ctx context.Context, s *Service, tenant int64, atOnce bool) error {
	select {
	case <-t.drops:
		t.stale = true
	default:
	}
	if !t.stale || t.index.Len() == 0 || !atOnce && time.Since(t.swept) < s.indexes.dropEvery {
		return nil
	}
	live, err := s.Store.LiveNumbers(ctx, tenant)
	if err != nil {
		return err
	}
	t.stale, t.swept = false, time.Now()
	t.remove(func(number int64, _ []int64) bool { return !live[number] })
	return nil
}

// remove takes contents out and reports whether there were any.
func (t *tenantIndex) remove(dropped func(number int64, chunks []int64) bool) bool {
	gone := map[int64]bool{}
	for number, chunks := range t.went {
		if !dropped(number, chunks) {
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
	return len(gone) > 0
}

// forget takes the contents out of which no search finds these chunks any more, for none is dropped in part. It reports whether it had any.
func (t *tenantIndex) forget(gone map[int64]bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.index != nil && t.remove(func(_ int64, chunks []int64) bool {
		return slices.ContainsFunc(chunks, func(chunk int64) bool { return gone[chunk] })
	})
}
