package rules

import (
	"context"
	"sync"
)

// A process keeps so many topics with their rules, and about so many bytes of them. More is kept
// only of a single topic.
const (
	maxCached      = 10_000
	maxCachedBytes = 256 << 20
)

// Cache has the topics whose rules a process has compiled. It is safe for concurrent use. The zero
// value is an empty cache.
type Cache[Q any] struct {
	mu        sync.RWMutex
	topics    map[int64]*Topic[Q]
	former    map[int64]*Topic[Q]     // topics as they were before their latest change
	bytes     int                     // about what all these take
	compiling map[int64]chan struct{} // closed when the topic's rules are compiled
}

// Enter waits until nobody else compiles the topic's rules.
func (c *Cache[Q]) Enter(ctx context.Context, no int64) (leave func(), err error) {
	for {
		c.mu.Lock()
		other := c.compiling[no]
		if other == nil {
			if c.compiling == nil {
				c.compiling = map[int64]chan struct{}{}
			}
			done := make(chan struct{})
			c.compiling[no] = done
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.compiling, no)
				close(done)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Get returns the topic in its latest known version, or nil.
func (c *Cache[Q]) Get(no int64) *Topic[Q] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.topics[no]
}

// Put keeps a topic unless the cache has a later version. A full cache is emptied first.
func (c *Cache[Q]) Put(t *Topic[Q]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.topics[t.No]; known != nil && known.Version >= t.Version {
		return
	}
	for _, before := range []*Topic[Q]{c.topics[t.No], c.former[t.No]} {
		if before != nil {
			c.bytes -= before.bytes()
		}
	}
	delete(c.topics, t.No)
	delete(c.former, t.No)
	size := t.bytes()
	if c.topics == nil || len(c.topics)+len(c.former) >= maxCached || c.bytes+size > maxCachedBytes {
		c.topics, c.former, c.bytes = map[int64]*Topic[Q]{}, map[int64]*Topic[Q]{}, 0
	}
	c.topics[t.No] = t
	c.bytes += size
}

// Former returns the topic as it was last known, though it may have changed since, or nil. Its
// compiled rules can be taken over.
func (c *Cache[Q]) Former(no int64) *Topic[Q] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t := c.topics[no]; t != nil {
		return t
	}
	return c.former[no]
}

// Forget notes that the topic has changed.
func (c *Cache[Q]) Forget(no int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.topics[no]; t != nil {
		c.former[no] = t
		delete(c.topics, no)
	}
}
