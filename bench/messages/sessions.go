package messages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
)

// Sessions measures receiving session by session.
func Sessions(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	messages := b.Size(50_000, 20_000)
	const few, many = 100, 10_000
	t := measure.Table{
		Title: "Sessions",
		Text: fmt.Sprintf(`%s messages of 1 KiB, in process, all sent first (64 senders, 100 at a time, each in another session), then received by 64
receivers, at most %d at a time, and completed. A receiver accepts the session that has waited longest, receives until it is
empty, and closes it.`, measure.Format(float64(messages)), atOnce),
		Columns: []string{sentRate, receivedRate, "accept p50 ms", "accept p99 ms", messageCPU},
	}
	on, err := measure.Engines(ctx, b)
	if err != nil {
		return t, err
	}
	name := func(engine string, number int) string {
		if number == 0 {
			return engine + ", no sessions"
		}
		return fmt.Sprintf("%s, %s sessions", engine, measure.Format(float64(number)))
	}
	var contenders []measure.Contender
	for _, engine := range measure.EngineNames {
		for _, number := range []int{0, few, many} {
			contenders = append(contenders, measure.Contender{Name: name(engine, number), Round: func(ctx context.Context) (measure.Sample, error) {
				return sessionRate(ctx, b, on[engine], messages, number)
			}})
		}
	}
	if err := t.TakeTurns(ctx, min(3, b.Rounds), contenders...); err != nil {
		return t, err
	}
	for _, engine := range measure.EngineNames {
		t.Note("%s: rate with %s sessions as a share of that with %d: %s", engine, measure.Format(many), few,
			measure.Format(t.Median(name(engine, many), receivedRate)/t.Median(name(engine, few), receivedRate)))
	}
	return t, nil
}

// sessionRate sends messages in so many sessions, and receives them.
func sessionRate(ctx context.Context, b *measure.Bench, on measure.Engine, messages, number int) (s measure.Sample, err error) {
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
	err = measure.InParallel(measure.Workers, messages/batchSize, func(i int) error {
		batch := make([]forebay.NewMessage, batchSize)
		for j := range batch {
			batch[j].Body = &measure.Text
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
	if err := on.Prepare(ctx); err != nil {
		return nil, err
	}
	var accepts measure.Latencies
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
		slices.Sort(accepts.Took)
		s["accept p50 ms"], s["accept p99 ms"] = measure.Percentile(accepts.Took, 0.5), measure.Percentile(accepts.Took, 0.99)
	}
	return s, nil
}

// receiveSession accepts a session and completes all its messages, in order.
func (m *messaging) receiveSession(ctx context.Context, queue string, accepts *measure.Latencies) (completed int, err error) {
	begun := time.Now()
	session, found, err := m.Sessions.Accept(ctx, forebay.DefaultTenant, queue, forebay.AcceptSessionRequest{})
	if err != nil || !found {
		return 0, err
	}
	accepts.Add(time.Since(begun))
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
