package azurebus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/forebayhq/forebay"
)

// receiver is an *azservicebus.Receiver or an *azservicebus.SessionReceiver.
type receiver interface {
	ReceiveMessages(ctx context.Context, maxMessages int, options *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(ctx context.Context, message *azservicebus.ReceivedMessage, options *azservicebus.CompleteMessageOptions) error
	AbandonMessage(ctx context.Context, message *azservicebus.ReceivedMessage, options *azservicebus.AbandonMessageOptions) error
	DeadLetterMessage(ctx context.Context, message *azservicebus.ReceivedMessage, options *azservicebus.DeadLetterOptions) error
}

// link is a receiver with its locks: one of each message, or that of its session.
type link struct {
	receiver
	session bool
	renew   func(ctx context.Context, m *azservicebus.ReceivedMessage) (until time.Time, err error)
	renewAt time.Time // when a third of the locks' time has passed
}

const (
	renewTime = 20 * time.Second
	// leastLock is taken for a lock that seems to be over already, as when clocks differ.
	leastLock = 15 * time.Second
)

// locked notes when locks end, by the service's clock.
func (l *link) locked(until time.Time) {
	left := time.Until(until)
	if left <= 0 {
		left = leastLock
	}
	l.renewAt = time.Now().Add(left / 3)
}

// until returns when the lock of a message ends.
func until(m *azservicebus.ReceivedMessage) time.Time {
	if m.LockedUntil == nil {
		return time.Time{}
	}
	return *m.LockedUntil
}

// keep renews a lock if a third of its time has passed.
func (l *link) keep(ctx context.Context, m *azservicebus.ReceivedMessage) error {
	if time.Now().Before(l.renewAt) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	until, err := l.renew(ctx, m)
	if err == nil {
		l.locked(until)
	}
	return err
}

// keepAll renews the locks of messages if a third of their time has passed. It returns the
// messages whose locks have not ended, also beside an error. The end of a session's lock is an
// error.
func (l *link) keepAll(ctx context.Context, held []delivery) ([]delivery, error) {
	if time.Now().Before(l.renewAt) {
		return held, nil
	}
	if l.session {
		return held, l.keep(ctx, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	ends, errs := make([]time.Time, len(held)), make([]error, len(held))
	var renewing sync.WaitGroup
	for i, d := range held {
		renewing.Go(func() { ends[i], errs[i] = l.renew(ctx, d.ReceivedMessage) })
	}
	renewing.Wait()
	var kept []delivery
	for i, err := range errs {
		if err == nil {
			l.locked(ends[i])
		}
		if errs[i] = unlessLost(err); err == nil || errs[i] != nil {
			kept = append(kept, held[i])
		}
	}
	return kept, errors.Join(errs...)
}

func messagesOf(list []delivery) []forebay.Message {
	messages := make([]forebay.Message, len(list))
	for i := range list {
		messages[i] = list[i].plain
	}
	return messages
}

// maxHeldBytes bounds the bodies that a source holds at once, by the sizes of those it got so far.
const maxHeldBytes = 16 << 20

// window says how many messages to ask for. The service does not take a limit in bytes. So a
// window begins with one message. It never asks for more than have room if each is of the largest
// size seen lately.
type window struct {
	most    int
	bytes   int64
	n       int
	largest int64
}

func newWindow(most int, bytes int64) *window { return &window{most: most, bytes: bytes, n: 1} }

func (w *window) next() int {
	return max(1, min(w.n, int(w.bytes/max(w.largest, 1))))
}

// took notes what was received. The largest size is forgotten slowly.
func (w *window) took(got []*azservicebus.ReceivedMessage) {
	w.largest -= w.largest / 8
	for _, m := range got {
		w.largest = max(w.largest, int64(len(body(m))))
	}
	w.n = min(2*w.n, w.most)
}
