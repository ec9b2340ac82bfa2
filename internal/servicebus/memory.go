package servicebus

import (
	"context"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/memory"
)

// reserved lets connections share a pool of memory.
type reserved struct{ pool *memory.Pool }

// Reserve takes n bytes for a connection.
func (r reserved) Reserve(ctx context.Context, c *amqp.Conn, n int) error {
	return clientOf(c).claim().Grow(ctx, int64(n))
}

// Release gives n bytes of a connection back.
func (r reserved) Release(c *amqp.Conn, n int) {
	clientOf(c).claim().Free(int64(n))
}
