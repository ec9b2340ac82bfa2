package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// sessions measures receiving session by session.
func sessions(ctx context.Context, b *bench) (table, error) {
	messages := b.size(50_000, 20_000)
	const few, many = 100, 10_000
	t := table{
		title: "Sessions",
		text: fmt.Sprintf(`%s messages of 1 KiB, in process, all sent first (64 senders, 100 at a time, each in another session), then received by 64
receivers, at most %d at a time, and completed. A receiver accepts the session that has waited longest, receives until it is
empty, and closes it.`, format(float64(messages)), atOnce),
		columns: []string{sentRate, receivedRate, "accept p50 ms", "accept p99 ms", messageCPU},
	}
	on, err := engines(ctx, b)
	if err != nil {
		return t, err
	}
	name := func(engine string, number int) string {
		if number == 0 {
			return engine + ", no sessions"
		}
		return fmt.Sprintf("%s, %s sessions", engine, format(float64(number)))
	}
	var contenders []contender
	for _, engine := range engineNames {
		for _, number := range []int{0, few, many} {
			contenders = append(contenders, contender{name(engine, number), func(ctx context.Context) (sample, error) {
				return sessionRate(ctx, b, on[engine], messages, number)
			}})
		}
	}
	if err := t.takeTurns(ctx, min(3, b.rounds), contenders...); err != nil {
		return t, err
	}
	for _, engine := range engineNames {
		t.note("%s: rate with %s sessions as a share of that with %d: %s", engine, format(many), few,
			format(t.median(name(engine, many), receivedRate)/t.median(name(engine, few), receivedRate)))
	}
	return t, nil
}

// sessionRate sends messages in so many sessions, and receives them.
func sessionRate(ctx context.Context, b *bench, on engine, messages, number int) (s sample, err error) {
	m, err := startMessaging(ctx, on)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	const queue, batchSize = "bench", 100
	required := number > 0
	settings := forebay.MessageQueueSettings{RequiresSession: &required, LockSeconds: messageLock}
	if _, _, err := m.Queues.Put(ctx, forebay.DefaultTenant, queue, settings); err != nil {
		return nil, err
	}
	begun := time.Now()
	err = inParallel(workers, messages/batchSize, func(i int) error {
		batch := make([]forebay.NewMessage, batchSize)
		for j := range batch {
			batch[j].Body = &text
			if required {
				batch[j].SessionID = strconv.Itoa((i*batchSize + j) % number)
			}
		}
		_, err := m.Messages.Send(ctx, forebay.DefaultTenant, queue, batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	sent := float64(messages) / time.Since(begun).Seconds()
	if err := on.prepare(ctx); err != nil {
		return nil, err
	}
	var accepts latencies
	s, err = m.drain(b, messages, func(int) (int, error) {
		if !required {
			return m.receive(ctx, queue)
		}
		return m.receiveSession(ctx, queue, &accepts)
	})
	if err != nil {
		return nil, err
	}
	s[sentRate] = sent
	if required {
		slices.Sort(accepts.took)
		s["accept p50 ms"], s["accept p99 ms"] = percentile(accepts.took, 0.5), percentile(accepts.took, 0.99)
	}
	return s, nil
}

// latencies collects how long something took.
type latencies struct {
	mu   sync.Mutex
	took []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, d)
}

// receiveSession accepts a session and completes all its messages, in order.
func (m *messaging) receiveSession(ctx context.Context, queue string, accepts *latencies) (completed int, err error) {
	begun := time.Now()
	session, found, err := m.Sessions.Accept(ctx, forebay.DefaultTenant, queue, forebay.AcceptSessionRequest{})
	if err != nil || !found {
		return 0, err
	}
	accepts.add(time.Since(begun))
	last := int64(0)
	for {
		got, err := m.Messages.ReceiveSession(ctx, forebay.DefaultTenant, queue, session.SessionToken, forebay.ReceiveRequest{MaxMessages: atOnce})
		if err != nil {
			return completed, err
		}
		if len(got) == 0 {
			return completed, m.Sessions.Close(ctx, forebay.DefaultTenant, queue, session.SessionToken)
		}
		for _, message := range got {
			if message.SequenceNumber <= last {
				return completed, fmt.Errorf("session %s: message %d came after %d", session.SessionID, message.SequenceNumber, last)
			}
			last = message.SequenceNumber
		}
		if err := m.complete(ctx, queue, got); err != nil {
			return completed, err
		}
		completed += len(got)
	}
}
