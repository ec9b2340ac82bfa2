package content

import (
	"encoding/binary"

	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/queue"
)

// LockToken is the lock token of a delivery as the management node has it.
func LockToken(l queue.Lock) (token wire.UUID) {
	binary.BigEndian.PutUint64(token[:8], uint64(l.Seq))
	binary.BigEndian.PutUint64(token[8:], uint64(l.Token))
	return token
}

// LockOf is the lock that a lock token stands for. A token that was never given stands for a lock
// that nobody has.
func LockOf(token wire.UUID) queue.Lock {
	return queue.Lock{Seq: int64(binary.BigEndian.Uint64(token[:8])), Token: int64(binary.BigEndian.Uint64(token[8:]))}
}

// DeliveryTag is the delivery tag of a delivery with that lock token. It is the token's bytes in
// the order of a GUID of .NET, whose first three parts are little-endian.
func DeliveryTag(token wire.UUID) []byte {
	return []byte{token[3], token[2], token[1], token[0], token[5], token[4], token[7], token[6],
		token[8], token[9], token[10], token[11], token[12], token[13], token[14], token[15]}
}
