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

// appetite is how many rows the writer takes into one transaction. Everybody waits for the
// transaction that is under way, so its work is to take a few milliseconds. Where the disk is
// slow it takes more, so that the transactions are few. While tenants share the writer it takes
// less. A tenant waits for the rows of others twice: in the transaction under way and in its
// own.
type batchSizer struct{ row, flush time.Duration } // what they take, about; 0: not known

const (
	shortWork   = 8 * time.Millisecond
	workByFlush = 4  // the work of a transaction may take so many times what its commit does
	leastRows   = 64 // so that a slow moment does not make the transactions many

	sharedWork = 2 * time.Millisecond
	SharedRows = 16
)

func (a *batchSizer) rows(shared bool) int {
	switch {
	case a.row == 0 && shared:
		return 2 * leastRows
	case a.row == 0:
		return MaxBatchOps
	case shared:
		return min(max(int(max(sharedWork, a.flush)/a.row), SharedRows), MaxBatchOps)
	}
	return min(max(int(max(shortWork, workByFlush*a.flush)/a.row), leastRows), MaxBatchOps)
}

// note takes in how long the work of a transaction with so many rows took, and its commit. Of a
// few rows most of the work is not theirs. The fewest that full transactions have do count:
// else one slow moment would keep them that small.
func (a *batchSizer) note(rows int, work, flush time.Duration) {
	if rows < SharedRows {
		return
	}
	row := max(work/time.Duration(rows), 1)
	if a.row == 0 {
		a.row, a.flush = row, flush
		return
	}
	a.row += (row - a.row) / 8
	a.flush += (flush - a.flush) / 8
}
