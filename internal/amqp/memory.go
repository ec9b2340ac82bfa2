package amqp

import (
	"context"
	"sync"
)

const (
	// freeBytes is what a connection may hold without asking for it.
	freeBytes = 64 << 10
	// reserveStep is what it asks for and gives back at once.
	reserveStep = 64 << 10
)

// memory is what a connection holds, in one direction, of the memory that all share.
type memory struct {
	conn      *Conn
	shared    Memory // nil if nothing bounds it
	direction Direction
	mu        *sync.Mutex // the connection's

	held     int
	asked    int  // is being reserved
	reserved int  // and may be held beyond freeBytes
	over     bool // all was given back, as the connection has ended
}

// held is how many bytes the connection holds in both directions. The lock is held.
func (c *Conn) held() int { return c.inbound.held + c.outbound.held }

// hold holds n more bytes, and waits for them if it has to.
func (m *memory) hold(ctx context.Context, n int) error {
	m.mu.Lock()
	m.held += n
	missing := m.missing()
	m.asked += missing
	m.mu.Unlock()
	if missing == 0 {
		return nil
	}
	err := m.shared.Reserve(ctx, m.conn, m.direction, missing)
	m.mu.Lock()
	m.asked -= missing
	late := m.over && err == nil
	switch {
	case err != nil:
		m.held -= n
	case !late:
		m.reserved += missing
	}
	m.mu.Unlock()
	if late {
		m.giveBack(missing)
	}
	return err
}

// missing is how many bytes are to be reserved so that what is held is covered. The lock is held,
// as below.
func (m *memory) missing() int {
	beyond := m.held - freeBytes - m.reserved - m.asked
	if beyond <= 0 || m.shared == nil || m.over {
		return 0
	}
	return (beyond + reserveStep - 1) / reserveStep * reserveStep
}

// free holds n bytes less. The writer gives back what is left over.
func (m *memory) free(n int) {
	if m.held -= n; m.spare() > 0 {
		m.conn.out.kick()
	}
}

// spare is how many bytes can be given back. One step is kept, so that a connection at the edge
// does not ask again and again, unless nothing is held beyond what is free.
func (m *memory) spare() int {
	unused := m.reserved - max(m.held-freeBytes, 0)
	if m.held > freeBytes {
		unused -= reserveStep
	}
	return max(unused, 0) / reserveStep * reserveStep
}

// takeSpare returns how many bytes the caller is to give back, without the lock.
func (m *memory) takeSpare() int {
	spare := m.spare()
	m.reserved -= spare
	return spare
}

// takeAll is takeSpare at the end of the connection: deliveries that the handler has not settled
// count no more.
func (m *memory) takeAll() int {
	all := m.reserved
	m.reserved, m.over = 0, true
	return all
}

func (m *memory) giveBack(n int) {
	if n > 0 {
		m.shared.Release(m.conn, m.direction, n)
	}
}
