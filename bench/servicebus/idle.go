package servicebus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/internal/sleep"
)

// idleConnections measures what connections cost a server whose receivers wait.
func idleConnections(ctx context.Context, b *measure.Bench, t *measure.Table) (err error) {
	const connections = 1000
	span := time.Duration(b.Size(60, 20)) * time.Second
	s, err := startBusServer(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	const queue = "idle"
	if err := s.makes(ctx, queue); err != nil {
		return err
	}
	var open [connections]*plainAMQP
	defer func() {
		for _, c := range open {
			if c != nil {
				_ = c.close() // the server's end is measured
			}
		}
	}()
	connect := func(i int) error {
		c, err := s.dial(ctx)
		if err != nil {
			return err
		}
		open[i] = c
		_, err = c.receiver(ctx, queue)
		return err
	}
	const first = 10 // these are part of what a server has anyway
	if err := measure.InParallel(1, first, connect); err != nil {
		return err
	}
	if err := sleep.For(ctx, 2*time.Second); err != nil {
		return err
	}
	memory := measure.MemoryOf(s.PID, "VmRSS")
	begun := time.Now()
	if err := measure.InParallel(8, connections-first, func(i int) error { return connect(first + i) }); err != nil {
		return err
	}
	rate := (connections - first) / time.Since(begun).Seconds()
	if err := sleep.For(ctx, 5*time.Second); err != nil { // until what connecting needed is done
		return err
	}
	before, err := measure.UsageOf(s.PID)
	if err != nil {
		return err
	}
	if err := sleep.For(ctx, span); err != nil {
		return err
	}
	after, err := measure.UsageOf(s.PID)
	if err != nil {
		return err
	}
	t.Note("%s idle connections with a receiver each, made at %s a second: **%s KB** of the server's resident memory and **%s ms** of its processor time a minute, each (over %v)",
		measure.Format(connections), measure.Format(rate), measure.Format((measure.MemoryOf(s.PID, "VmRSS")-memory)*1000/(connections-first)),
		measure.Format((after.CPU-before.CPU).Seconds()*1000/span.Minutes()/connections), span)
	return nil
}

// manySessions measures receiving from many small sessions. A client of azservicebus negotiates
// the claims of one link at a time, so several clients show what the server can do.
func manySessions(ctx context.Context, b *measure.Bench, t *measure.Table) (err error) {
	s, err := startBusServer(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, clients := range []int{1, 8} {
		if err := sessionsOf(ctx, s, t, clients, b.Size(10_000, 2000)); err != nil {
			return fmt.Errorf("%d clients: %w", clients, err)
		}
	}
	return nil
}

// sessionsOf fills a queue with sessions, and receives them by so many clients.
func sessionsOf(ctx context.Context, s *busServer, t *measure.Table, clients, sessions int) (err error) {
	queue, required := fmt.Sprintf("sessions-%d", clients), true
	if _, err := s.PutMessageQueue(ctx, queue, forebay.MessageQueueSettings{RequiresSession: &required, LockSeconds: lockSeconds}); err != nil {
		return err
	}
	c := make([]sdkClient, clients)
	for i := range c {
		if c[i], err = s.sdk(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c[i].close()) }()
	}
	messages, err := c[0].fillSessions(ctx, queue, sessions)
	if err != nil {
		return err
	}
	var received atomic.Int64
	var accepts measure.Latencies
	begun := time.Now()
	err = measure.InParallel(manyLinks, sessions, func(i int) error {
		n, err := c[i%clients].receiveSession(ctx, queue, &accepts)
		received.Add(int64(n))
		return err
	})
	took := time.Since(begun).Seconds()
	if err != nil {
		return fmt.Errorf("after %d of %d sessions: %w", len(accepts.Took), sessions, err)
	}
	if int(received.Load()) != messages {
		return fmt.Errorf("%d messages came of %d", received.Load(), messages)
	}
	slices.Sort(accepts.Took)
	t.Note("%s sessions of one to three messages, %d at a time, azservicebus with %d connections: **%s sessions/s**, %s messages/s; accepting one takes p50 %s ms, p99 %s ms",
		measure.Format(float64(sessions)), manyLinks, clients, measure.Format(float64(sessions)/took), measure.Format(float64(messages)/took), measure.Format(measure.Percentile(accepts.Took, 0.5)), measure.Format(measure.Percentile(accepts.Took, 0.99)))
	return (&broker{left: s.left}).isEmpty(ctx, queue)
}

// inSession is how many messages a session has, by its id.
func inSession(id string) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "session-"))
	return n%3 + 1, err
}

// fillSessions sends the messages of all sessions, each session's one after the other.
func (c sdkClient) fillSessions(ctx context.Context, queue string, sessions int) (messages int, err error) {
	s, err := c.NewSender(queue, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	var all []*azservicebus.Message
	for i := range sessions {
		id := fmt.Sprintf("session-%d", i)
		n, err := inSession(id)
		if err != nil {
			return 0, err
		}
		for range n {
			all = append(all, &azservicebus.Message{Body: []byte(measure.Text), SessionID: &id})
		}
	}
	for some := range slices.Chunk(all, underWay) {
		batch, err := s.NewMessageBatch(ctx, nil)
		if err != nil {
			return 0, err
		}
		for _, m := range some {
			if err := batch.AddMessage(m, nil); err != nil {
				return 0, err
			}
		}
		if err := s.SendMessageBatch(ctx, batch, nil); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

// receiveSession accepts the next session, completes its messages and closes it.
func (c sdkClient) receiveSession(ctx context.Context, queue string, accepts *measure.Latencies) (received int, err error) {
	begun := time.Now()
	r, err := c.AcceptNextSessionForQueue(ctx, queue, nil)
	if err != nil {
		return 0, err
	}
	accepts.Add(time.Since(begun))
	defer func() { err = errors.Join(err, r.Close(ctx)) }()
	want, err := inSession(r.SessionID())
	if err != nil {
		return 0, err
	}
	for received < want {
		got, err := r.ReceiveMessages(ctx, want-received, nil)
		if err != nil {
			return received, err
		}
		if err := completeAll(ctx, r, got); err != nil {
			return received, err
		}
		received += len(got)
	}
	return received, nil
}
