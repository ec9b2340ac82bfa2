package servicebus

import (
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/servicebus/content"
)

// tokenOfTag returns the token, as package messaging takes it, of the lock that a delivery tag
// names. The order of a tag's bytes is undone by what made it.
func tokenOfTag(tag []byte) (string, error) {
	if len(tag) != len(wire.UUID{}) {
		return "", forebay.ErrLockLost
	}
	lock := content.LockOf(wire.UUID(content.DeliveryTag(wire.UUID(tag))))
	return message.NewToken(lock.Seq, lock.Token), nil
}

// ticks is a time in .NET's unit: 100 ns since the first of January of the year 1.
func ticks(t time.Time) int64 {
	const unixEpoch = 621_355_968_000_000_000
	return t.Unix()*10_000_000 + int64(t.Nanosecond())/100 + unixEpoch
}
