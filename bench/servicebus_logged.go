package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/Azure/go-amqp"

	server "github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// loggedAMQP is bareAMQP, but a message counts as sent once it is in a file that was synced, and
// what receivers settle is written there too. No server that promises to keep messages does less.
type loggedAMQP struct {
	bareAMQP
	log *syncedLog
}

func startLoggedAMQP(ctx context.Context, b *bench) (*broker, error) {
	place, err := b.sqlite().place(ctx)
	if err != nil {
		return nil, err
	}
	c, err := startChild(ctx, childSpec{Role: "amqp", Database: filepath.Join(place.dir, "messages.log")})
	if err != nil {
		return nil, errors.Join(err, place.release())
	}
	return &broker{
		pid: c.pid, stop: func() error { return errors.Join(c.stop(), place.release()) },
		makes: func(context.Context, string) error { return nil },
		connect: func(ctx context.Context) (connection, error) {
			return dialAMQP(ctx, c.address, amqp.SASLTypeAnonymous())
		},
	}, nil
}

func (h loggedAMQP) AttachIncoming(l *server.Incoming) {
	latency := wire.ValueOr(l.Attach().Target.Address, "") == latencyQueue
	_ = l.Accept(server.IncomingOptions{Credit: 1000, Receive: func(d *server.Delivery) {
		h.log.append(d.Payload, func() {
			if latency {
				h.passed <- d.Payload
			}
			d.Settle(&wire.Accepted{})
		})
	}})
}

func (h loggedAMQP) AttachOutgoing(l *server.Outgoing) {
	h.send(l, server.OutgoingOptions{Settled: func(list []server.Settlement) {
		for _, s := range list {
			h.log.append(s.Tag, func() { l.Settle(s.ID, s.State) })
		}
	}})
}

// syncedLog is a file to which records are appended. Those that come while others are synced
// are written and synced together.
type syncedLog struct {
	mu      sync.Mutex
	kick    sync.Cond
	records []byte
	after   []func()
}

func newSyncedLog(path string) (*syncedLog, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	l := &syncedLog{}
	l.kick.L = &l.mu
	go l.run(f)
	return l, nil
}

// append has a record written, and after called once it is on disk.
func (l *syncedLog) append(record []byte, after func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records, l.after = append(l.records, record...), append(l.after, after)
	l.kick.Signal()
}

func (l *syncedLog) run(f *os.File) {
	var records []byte
	var after []func()
	for {
		l.mu.Lock()
		for len(l.after) == 0 {
			l.kick.Wait()
		}
		records, l.records = l.records, records[:0]
		after, l.after = l.after, after[:0]
		l.mu.Unlock()
		_, err := f.Write(records)
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			panic(err) // the benchmark fails
		}
		for _, done := range after {
			done()
		}
	}
}
