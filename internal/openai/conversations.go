package openai

import (
	"container/list"
	"encoding/json"
	"sync"
)

// conversations keeps what was said on WebSockets, between two responses that are not stored. It
// is bounded by bytes, in all and for each tenant. What has been idle for longest makes room.
type conversations struct {
	most, mostOfTenant int64

	mu      sync.Mutex
	size    int64
	tenants map[string]int64 // bytes
	idle    list.List        // of *conversation, the longest idle one first
}

// conversation is what was said up to a response, with that.
type conversation struct {
	tenant, response string
	items            []json.RawMessage
	size             int64
	place            *list.Element // nil: it is not kept any more
}

// newConversations returns one for a process with so much memory for payloads.
func newConversations(memory int64) *conversations {
	return &conversations{most: memory / 2, mostOfTenant: memory / 4, tenants: map[string]int64{}}
}

// itemOverhead is what an item takes besides its bytes.
const itemOverhead = 64

// keep keeps a conversation, unless it is too large.
func (c *conversations) keep(tenant, response string, items []json.RawMessage) *conversation {
	v := &conversation{tenant: tenant, response: response, items: items, size: sizeOf(items) + int64(len(items))*itemOverhead}
	if v.size > c.mostOfTenant {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.idle.Front(); e != nil && c.tenants[tenant]+v.size > c.mostOfTenant; {
		next := e.Next()
		if other := e.Value.(*conversation); other.tenant == tenant {
			c.remove(other)
		}
		e = next
	}
	for c.size+v.size > c.most {
		c.remove(c.idle.Front().Value.(*conversation))
	}
	v.place = c.idle.PushBack(v)
	c.size += v.size
	c.tenants[tenant] += v.size
	return v
}

// take returns what was said, and forgets it. ok is false if it was forgotten before.
func (c *conversations) take(v *conversation) (items []json.RawMessage, ok bool) {
	if v == nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.place == nil {
		return nil, false
	}
	items = v.items
	c.remove(v)
	return items, true
}

func (c *conversations) remove(v *conversation) {
	c.idle.Remove(v.place)
	c.size -= v.size
	if c.tenants[v.tenant] -= v.size; c.tenants[v.tenant] == 0 {
		delete(c.tenants, v.tenant)
	}
	v.place, v.items = nil, nil // its connection may live for long
}

// held returns how many bytes are kept.
func (c *conversations) held() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

func sizeOf(items []json.RawMessage) (size int64) {
	for _, item := range items {
		size += int64(len(item))
	}
	return size
}
