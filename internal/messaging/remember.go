package messaging

import (
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
)

const (
	// rememberFor is how long what was read of an entity is used.
	rememberFor = 5 * time.Second
	// maxRemembered is how many queues, and how many spellings of names, a cache has at most.
	maxRemembered = 4000
)

// remembered is a queue as a read found it that began at that time. It is used for a short time
// only: another process may have changed the queue, or the store may have deleted it as idle.
type remembered struct {
	bus.MessageQueue
	at time.Time
}

// spelling is how the entity that a name stands for is spelled, as it was read at that time.
type spelling struct {
	name string
	at   time.Time
}

// cache is what is remembered of the entities of a tenant. It may share it with others.
type cache struct {
	mu      sync.RWMutex
	queues  map[string]remembered // by their names in the store
	spelled map[string]spelling   // by names in the store, in any case
	changes int                   // of queues, since the start
}

// caches are those of all tenants. A tenant that keeps changing its entities makes few others
// read theirs again.
type caches struct {
	seed maphash.Seed
	all  [64]cache
}

func newCaches() *caches {
	m := &caches{seed: maphash.MakeSeed()}
	for i := range m.all {
		m.all[i].queues, m.all[i].spelled = map[string]remembered{}, map[string]spelling{}
	}
	return m
}

func (m *caches) ofTenant(tenant string) *cache {
	return &m.all[maphash.String(m.seed, tenant)%uint64(len(m.all))]
}

// of is the cache of an entity by its name in the store.
func (m *caches) of(key string) *cache {
	tenant, _, _ := strings.Cut(key, "/")
	return m.ofTenant(tenant)
}

// again does something once more if a queue that it remembered is gone. Another process may have
// made one of the same name since.
func (m *caches) again(tenant string, do func() error) error {
	began, before := time.Now(), m.ofTenant(tenant).changesSoFar()
	err := do()
	if forebay.CodeOf(err) == forebay.CodeUnknownQueue && m.ofTenant(tenant).changesSoFar() != before && time.Since(began) < rememberFor {
		err = do()
	}
	return err
}

// changed forgets a queue, and keeps reads that are under way from being remembered.
func (m *caches) changed(key string) { m.of(key).change(key, false) }

// changedBelow forgets a topic with its subscriptions.
func (m *caches) changedBelow(topic string) { m.of(topic).change(topic, true) }

// noteGone forgets a queue that the error says is gone.
func (m *caches) noteGone(q bus.MessageQueue, err error) {
	if forebay.CodeOf(err) == forebay.CodeUnknownQueue {
		m.changed(q.Name)
	}
}

func (m *cache) change(key string, below bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	delete(m.queues, key)
	if below {
		maps.DeleteFunc(m.queues, func(of string, _ remembered) bool { return strings.HasPrefix(of, key+"/") })
	}
	clear(m.spelled) // a new queue may have a name that stood for another
}

func (m *cache) changesSoFar() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changes
}

// queue returns what is remembered of a queue.
func (m *cache) queue(key string) (q bus.MessageQueue, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	known, ok := m.queues[key]
	return known.MessageQueue, ok && time.Since(known.at) < rememberFor
}

// spelling returns how the entity is spelled that a name in any case stands for.
func (m *cache) spelling(key string) (name string, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	known, ok := m.spelled[key]
	return known.name, ok && time.Since(known.at) < rememberFor
}

// remember keeps what was read of a queue, unless a queue has changed since the read began. Of
// reads at the same time the one that began last stays.
func (m *cache) remember(key string, read remembered, changes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.queues[key].at.After(read.at):
	case m.changes != changes:
		delete(m.queues, key) // what was read before is older still
	default:
		makeRoom(m.queues, func(q remembered) time.Time { return q.at })
		m.queues[key] = read
	}
}

// rememberSpelling keeps how a name is spelled, unless a queue has changed since the read began.
func (m *cache) rememberSpelling(key string, read spelling, changes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes == changes {
		makeRoom(m.spelled, func(s spelling) time.Time { return s.at })
		m.spelled[key] = read
	}
}

// makeRoom removes from a full map what is not used any more, and others if that is not a quarter
// of it. Names have no end: queues come and go, and each can be spelled in many ways.
func makeRoom[V any](full map[string]V, at func(V) time.Time) {
	if len(full) < maxRemembered {
		return
	}
	maps.DeleteFunc(full, func(_ string, v V) bool { return time.Since(at(v)) >= rememberFor })
	for key := range full {
		if len(full) <= maxRemembered*3/4 {
			return
		}
		delete(full, key)
	}
}
