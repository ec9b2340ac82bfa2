package servicebus

import (
	"context"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/memory"
)

// pools are the memory for messages in transit. Writing frees its own pool without needing
// another, so messages that wait to be sent do not wait for what is received.
type pools struct {
	received *memory.Pool // by clients sent: until it is stored
	sent     *memory.Pool // received from the store: until it is sent
	written  *memory.Pool // frames that wait to be written, and unsettled deliveries
}

// newPools shares out the memory of a direction.
func newPools(bytes int64) pools {
	return pools{received: memory.New(bytes), sent: memory.New(bytes / 2), written: memory.New(bytes / 2)}
}

// reservations are what a connection holds of the pools, by direction. They count for the tenant
// of its first token, and for none before.
type reservations [2]*memory.Claim

func (p pools) reserve() reservations {
	return reservations{amqp.Inbound: p.received.Claim(""), amqp.Outbound: p.written.Claim("")}
}

func (r reservations) move(tenant string) {
	for _, claim := range r {
		claim.Move(tenant)
	}
}

func (r reservations) release() {
	for _, claim := range r {
		claim.Release()
	}
}

// reserving lets connections share the pools.
type reserving struct{}

// Reserve takes n bytes for a connection.
func (reserving) Reserve(ctx context.Context, c *amqp.Conn, d amqp.Direction, n int) error {
	return clientOf(c).reserved[d].Grow(ctx, int64(n))
}

// Release gives n bytes of a connection back.
func (reserving) Release(c *amqp.Conn, d amqp.Direction, n int) {
	clientOf(c).reserved[d].Free(int64(n))
}
