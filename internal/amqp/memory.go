package amqp

import "context"

const (
	// freeBytes is what a connection may hold without asking for it.
	freeBytes = 64 << 10
	// reserveStep is what it asks for and gives back at once.
	reserveStep = 64 << 10
)

// usage is what a connection holds of the memory that all share. Its lock guards it.
type usage struct{ held, reserved int }

// missing is how many bytes are to be reserved so that what is held is covered.
func (u *usage) missing() int {
	beyond := u.held - freeBytes - u.reserved
	if beyond <= 0 {
		return 0
	}
	return (beyond + reserveStep - 1) / reserveStep * reserveStep
}

// spare is how many bytes can be given back. One step is kept, so that a connection at the edge
// does not ask again and again, unless nothing is held beyond what is free.
func (u *usage) spare() int {
	unused := u.reserved - max(u.held-freeBytes, 0)
	if u.held > freeBytes {
		unused -= reserveStep
	}
	return max(unused, 0) / reserveStep * reserveStep
}

// reserve holds n more bytes, and waits for them if it has to.
func (c *Conn) reserve(ctx context.Context, n int) error {
	shared := c.server.options.Memory
	c.mu.Lock()
	c.memory.held += n
	missing := c.memory.missing()
	if shared == nil {
		missing = 0
	}
	c.memory.reserved += missing
	c.mu.Unlock()
	if missing == 0 {
		return nil
	}
	err := shared.Reserve(ctx, c, missing)
	if err != nil {
		c.mu.Lock()
		c.memory.held -= n
		c.memory.reserved -= missing
		c.mu.Unlock()
	}
	return err
}

// release holds n bytes less.
func (c *Conn) release(n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	spare := c.releaseLocked(n)
	c.mu.Unlock()
	c.giveBack(spare)
}

// releaseLocked holds n bytes less, and returns how many are to be given back without the lock.
func (c *Conn) releaseLocked(n int) (spare int) {
	c.memory.held -= n
	if c.server.options.Memory == nil {
		return 0
	}
	spare = c.memory.spare()
	c.memory.reserved -= spare
	return spare
}

func (c *Conn) giveBack(spare int) {
	if spare > 0 {
		c.server.options.Memory.Release(c, spare)
	}
}
