package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/forebayhq/forebay"
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
	on    engine
	store *stores.Stores
	place place
}

func startMessaging(ctx context.Context, on engine) (*messaging, error) {
	place, err := on.place(ctx)
	if err != nil {
		return nil, err
	}
	options := db.Options{URL: place.database, Serve: true}
	if file, ok := strings.CutPrefix(place.database, "sqlite:"); ok {
		options.URL, options.Path = "", file
	}
	s, err := stores.Open(ctx, options)
	if err != nil {
		return nil, errors.Join(err, place.release())
	}
	return &messaging{plain.New(plain.Options{Store: s.Bus}), on, s, place}, nil
}

func (m *messaging) stop() error { return errors.Join(m.store.DB.Close(), m.place.release()) }

// engines are what messages are measured on.
func engines(ctx context.Context, b *bench) (map[string]engine, error) {
	pg, err := b.postgres(ctx)
	return map[string]engine{"SQLite": b.sqlite(), "PostgreSQL": pg}, err
}

var engineNames = []string{"SQLite", "PostgreSQL"}

// drain lets 64 receivers call receive until they have completed so many messages in all. receive
// returns how many it completed.
func (m *messaging) drain(b *bench, messages int, receive func(receiver int) (int, error)) (sample, error) {
	var left atomic.Int64
	left.Store(int64(messages))
	meter := startMeter(b.dir, m.on)
	err := inParallel(workers, workers, func(receiver int) error {
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
	s := meter.stop(messages, nil)
	return sample{receivedRate: s[jobRate], messageCPU: s["CPU µs/job"]}, nil
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
