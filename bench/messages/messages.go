// Package messages measures queues of messages in this process: sessions and topics.
package messages

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/internal/db"
	plain "github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/stores"
)

const (
	sentRate     = "sent/s"
	receivedRate = "received/s"
	messageCPU   = "CPU µs/message"
	messageLock  = 300 // seconds, so that nothing is redelivered
	atOnce       = 10  // messages that are received at once
)

// messaging is queues of messages in this process, on a database of its own.
type messaging struct {
	*plain.Service
	on    measure.Engine
	store *stores.Stores
	place measure.Place
}

func startMessaging(ctx context.Context, on measure.Engine) (*messaging, error) {
	place, err := on.Place(ctx)
	if err != nil {
		return nil, err
	}
	options := db.Options{URL: place.Database, Serve: true}
	if file, ok := strings.CutPrefix(place.Database, "sqlite:"); ok {
		options.URL, options.Path = "", file
	}
	s, err := stores.Open(ctx, options)
	if err != nil {
		return nil, errors.Join(err, place.Release())
	}
	return &messaging{plain.New(plain.Options{Store: s.Bus}), on, s, place}, nil
}

func (m *messaging) stop() error { return errors.Join(m.store.DB.Close(), m.place.Release()) }

// drain lets 64 receivers call receive until they have completed so many messages in all. receive
// returns how many it completed.
func (m *messaging) drain(b *measure.Bench, messages int, receive func(receiver int) (int, error)) (measure.Sample, error) {
	var left atomic.Int64
	left.Store(int64(messages))
	meter := measure.StartMeter(b.Dir, m.on)
	err := measure.InParallel(measure.Workers, measure.Workers, func(receiver int) error {
		for left.Load() > 0 {
			n, err := receive(receiver)
			if err != nil {
				return err
			}
			left.Add(int64(-n))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if left.Load() != 0 {
		return nil, errors.New("more messages were completed than there were")
	}
	s := meter.Stop(messages, nil)
	return measure.Sample{receivedRate: s[measure.JobRate], messageCPU: s["CPU µs/job"]}, nil
}

// complete completes messages, all at the same time.
func (m *messaging) complete(ctx context.Context, entity string, messages []forebay.Message) error {
	errs := make([]error, len(messages))
	var all sync.WaitGroup
	for i := range messages {
		all.Go(func() { errs[i] = m.Messages.Complete(ctx, forebay.DefaultTenant, entity, messages[i].LockToken) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// receive takes messages of a queue or a subscription and completes them.
func (m *messaging) receive(ctx context.Context, entity string) (int, error) {
	got, err := m.Messages.Receive(ctx, forebay.DefaultTenant, entity, forebay.ReceiveRequest{MaxMessages: atOnce})
	if err != nil {
		return 0, err
	}
	return len(got), m.complete(ctx, entity, got)
}
