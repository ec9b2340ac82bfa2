package documents

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/vector"
)

// indexes have the codes of tenants' vectors in memory. They may lag behind the database. Each
// search first reads what went live since the last one. When the store notifies that contents
// were dropped, all live contents are read and the others removed, at most every dropEvery. In
// between, searches check their results in the store and remove contents that are no longer live.
type indexes struct {
	limit     int64         // bytes
	dropEvery time.Duration // between two reads of all live contents
	watch     func(tenant int64) (drops <-chan struct{}, stop func())

	mu       sync.Mutex
	byTenant map[int64]*tenantIndex
}

type tenantIndex struct {
	mu    sync.RWMutex
	index *vector.Index     // nil: nothing was read yet
	begin int64             // it has contents that went live after this number
	after int64             // and up to this one
	went  map[int64][]int64 // chunks by the number under which their revision went live
	top   int64             // the highest number of a chunk that was ever added
	stale bool              // it may have dropped contents
	swept time.Time         // when dropped contents were last removed
	drops <-chan struct{}
	stop  func()    // of drops
	used  time.Time // guarded by indexes.mu
	bytes int64     // the same
}

// of returns a tenant's index. If the indexes are too large together, those unused for longest
// are discarded.
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

// nearest returns chunks that are probably nearest to a unit vector. Up to n are from the
// database's own index, if it has one, and up to n from this one. If stale is true, some may have
// been dropped. With fresh, all live contents are read first and no chunk is stale. upTo is the
// number under which the latest content went live that was looked at.
func (t *tenantIndex) nearest(ctx context.Context, s *Service, tenant int64, unit []float32, n int, fresh bool) (found []int64, upTo int64, stale bool, err error) {
	indexed, until, err := s.Store.IndexedNearest(ctx, tenant, unit, n)
	if err != nil {
		return nil, 0, false, err
	}
	if err := t.refresh(ctx, s, tenant, len(unit), until, fresh); err != nil {
		return nil, 0, false, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	found, err = t.index.Nearest(unit, n)
	if errors.Is(err, vector.ErrLength) { // the tenant has begun with vectors of another dimension
		return nil, 0, false, nil
	}
	for _, chunk := range indexed {
		if !slices.Contains(found, chunk) {
			found = append(found, chunk)
		}
	}
	return found, t.after, t.stale, err
}

// maxOverlap is how many codes are kept that the database's index has as well.
const maxOverlap = 50_000

// refresh removes dropped contents and adds those that went live since the last time. Contents up
// to the number until are in the database's index and are left out.
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
	t.giveWay(codes)
	for _, c := range codes {
		t.after = c.Live
		if t.index.Add(c.Chunk, c.Code) == nil { // a code of another dimension belongs to contents that are being removed
			t.went[c.Live] = append(t.went[c.Live], c.Chunk)
		}
	}
}

// giveWay removes contents of which chunks have numbers that others have now. SQLite gives the
// numbers of chunks that were removed again, so such a content was dropped.
func (t *tenantIndex) giveWay(codes []LiveCode) {
	again, top := map[int64]int64{}, t.top // by chunk: under which number it went live
	for _, c := range codes {
		if c.Chunk <= top {
			again[c.Chunk] = c.Live
		}
		t.top = max(t.top, c.Chunk)
	}
	if len(again) == 0 {
		return
	}
	t.remove(func(number int64, chunks []int64) bool {
		return slices.ContainsFunc(chunks, func(chunk int64) bool { live, given := again[chunk]; return given && live != number })
	})
}

// dropEvery is the shortest time between two reads of all live contents of a tenant.
const dropEvery = 5 * time.Second

// drop removes dropped contents after a notification. It does so at most every dropEvery, or now
// if atOnce is set.
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

// remove removes contents and reports whether there were any.
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

// forget removes the contents with these chunks, which searches no longer find, of those that went
// live up to a number. Later ones may have chunks with the same numbers. Contents are only dropped
// as a whole. It reports whether there were any.
func (t *tenantIndex) forget(gone map[int64]bool, upTo int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.index != nil && t.remove(func(number int64, chunks []int64) bool {
		return number <= upTo && slices.ContainsFunc(chunks, func(chunk int64) bool { return gone[chunk] })
	})
}
