package db

import (
	"sync/atomic"
	"time"
)

// Operations that bring something new wait for the writer, and their tenants take turns. So a
// tenant that sends ten thousand at once does not make another wait for them. What settles
// deliveries, and what belongs to no tenant, goes into the next transaction at once.

// rotation is how many rows of a tenant go into a transaction before the next tenant's.
const rotation = 8

// backlog holds such operations. Those whose callers have left are dropped when they are
// reached, and take no room in a transaction. So a client that sends and hangs up at once does
// not make it grow.
type backlog struct {
	of   map[int64][]Operation // by tenant, in the order in which they came
	next []int64               // tenants with some, in rotation
}

// company tells whether tenants share the writers: those of a process that has two count together.
type partyTracker struct {
	latest atomic.Int64              // the tenant of the latest operation
	turned atomic.Pointer[time.Time] // when that was last another's than the one before it; nil: never
}

// sharedFor is for how long tenants count as sharing the writer after two of them have brought
// something.
const sharedFor = 10 * time.Second

// came notes that a tenant brings something.
func (c *partyTracker) came(tenant int64) {
	if before := c.latest.Swap(tenant); before != tenant && before != 0 {
		now := time.Now()
		c.turned.Store(&now)
	}
}

// Now reports whether several tenants bring something these days.
func (c *partyTracker) Now() bool {
	at := c.turned.Load()
	return at != nil && time.Since(*at) < sharedFor
}

func (b *backlog) empty() bool { return len(b.next) == 0 }

func (b *backlog) add(tenant int64, op Operation) {
	if b.of == nil {
		b.of = map[int64][]Operation{}
	}
	if len(b.of[tenant]) == 0 {
		b.next = append(b.next, tenant)
	}
	b.of[tenant] = append(b.of[tenant], op)
}

// take passes on operations until more says that it is enough. The first is taken in any case.
func (b *backlog) take(more func() bool, pass func(Operation)) {
	for passed := false; len(b.next) > 0 && (!passed || more()); {
		tenant, rows := b.next[0], 0
		b.next = b.next[1:]
		for rows < rotation && len(b.of[tenant]) > 0 && (rows == 0 || more()) {
			op := b.of[tenant][0]
			b.of[tenant][0] = nil
			b.of[tenant] = b.of[tenant][1:]
			if err := op.left(); err != nil {
				op.finish(err)
				continue
			}
			rows += op.What().rows()
			pass(op)
			passed = true
		}
		if len(b.of[tenant]) > 0 {
			b.next = append(b.next, tenant)
		} else {
			delete(b.of, tenant)
		}
	}
}
