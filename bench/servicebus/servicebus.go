// Package servicebus measures messages over AMQP, as Service Bus's clients send and receive them.
// Beside Forebay it runs RabbitMQ, NATS JetStream and bare AMQP servers, which do nothing but pass
// messages on, or have them on disk first.
package servicebus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/internal/sleep"
)

const (
	manyLinks    = 32
	underWay     = 100 // messages that a link has under way at once, of each direction
	lockSeconds  = 300 // of a message, so that nothing is redelivered
	latencyQueue = "latency"
	sendP50      = "p50 ms"
	sendP99      = "p99 ms"
	serverCPU    = "server CPU µs/message"
	clientCPU    = "client CPU µs/message"
)

// linkColumns are the columns of measurements with so many links.
func linkColumns(links int) (alone, together, received string) {
	return fmt.Sprintf("%d: sent/s", links), fmt.Sprintf("%d: sent/s, by %d", links, underWay), fmt.Sprintf("%d: received/s", links)
}

// ServiceBus measures messages through AMQP, beside other servers of messages.
func ServiceBus(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	t := measure.Table{
		Title: "Messages through AMQP",
		Text: fmt.Sprintf(`Durable messages of 1 KiB, one queue, one connection with 1 link and with %d links (channels, goroutines). First each link
sends one message at a time and waits until it is stored. Then each has %d under way; azservicebus sends batches of %d instead. Then all
are received, at most %d at a time on a link, and each is settled by itself. Only azservicebus waits for each settlement. Milliseconds: from a
send to the receiver that waits for it, one message after the other. The bare server stores nothing. CPU is that of a message's
whole way, with %d links. Those with a log or a table do nothing but append messages and settlements to a file, or insert and delete rows of SQLite, and sync. Each server has a process of its own.`, manyLinks, underWay, underWay, underWay, manyLinks),
	}
	for _, links := range []int{1, manyLinks} {
		alone, together, received := linkColumns(links)
		t.Columns = append(t.Columns, alone, together, received)
	}
	t.Columns = append(t.Columns, sendP50, sendP99, serverCPU, clientCPU)
	const forebaySDK, forebayAMQP, rabbitAMQP, rabbit091, nats = "Forebay, azservicebus", "Forebay, go-amqp", "RabbitMQ, go-amqp", "RabbitMQ, amqp091-go", "NATS JetStream, nats.go"
	starts := []struct {
		name  string
		start func(context.Context, *measure.Bench) (*broker, error)
	}{
		{forebaySDK, startForebaySDK}, {forebayAMQP, startForebayAMQP},
		{"a bare AMQP server, go-amqp", startBareAMQP},
		{"an AMQP server with a log, go-amqp", startKeptAMQP("messages.log")}, {"an AMQP server with one table, go-amqp", startKeptAMQP("messages.db")},
		{rabbitAMQP, startRabbitAMQP}, {rabbit091, startRabbit091},
		{nats, startNATS},
	}
	if _, err := os.Stat(b.RabbitMQ); err != nil {
		t.Note("RabbitMQ was not measured: %s is not there", cmp.Or(b.RabbitMQ, "its program"))
		starts = slices.Delete(starts, 5, 7)
	}
	var contenders []measure.Contender
	for _, c := range starts {
		if b.Peers || strings.HasPrefix(c.name, "Forebay") {
			contenders = append(contenders, measure.Contender{Name: c.name, Round: func(ctx context.Context) (measure.Sample, error) { return messagesOver(ctx, b, c.start) }})
		}
	}
	if err := t.TakeTurns(ctx, min(3, b.Rounds), contenders...); err != nil {
		return t, err
	}
	for _, links := range []int{1, manyLinks} {
		alone, together, received := linkColumns(links)
		for _, column := range []string{alone, together, received} {
			t.Expect(fmt.Sprintf("%s: Forebay by go-amqp as a multiple of RabbitMQ by go-amqp", column), t.Median(forebayAMQP, column)/t.Median(rabbitAMQP, column), "≥", 1.5)
		}
	}
	if measure.OnlyContenders != "" {
		return t, nil
	}
	if err := idleConnections(ctx, b, &t); err != nil {
		return t, fmt.Errorf("idle connections: %w", err)
	}
	if err := manySessions(ctx, b, &t); err != nil {
		return t, fmt.Errorf("sessions: %w", err)
	}
	return t, nil
}

// broker is a server of messages that was started for one round.
type broker struct {
	pid     int
	makes   func(ctx context.Context, queue string) error // an empty queue
	connect func(context.Context) (connection, error)
	// left returns how many messages a queue has; nil: nothing is stored.
	left func(ctx context.Context, queue string) (int, error)
	// lag is how long after the last settlement receivers stay connected. A server may
	// forget settlements of those that have gone.
	lag  time.Duration
	stop func() error
}

// connection is one of a client.
type connection interface {
	sender(ctx context.Context, queue string) (messageSender, error)
	receiver(ctx context.Context, queue string) (messageReceiver, error)
	close() error
}

// messageSender is a link for one goroutine.
type messageSender interface {
	// send sends a message and waits until it is stored.
	send(context.Context) error
	// sendMany sends n messages, of which underWay may be under way at once, and waits until
	// all are stored.
	sendMany(ctx context.Context, n int) error
}

// messageReceiver is a link for one goroutine.
type messageReceiver interface {
	// receive waits for messages, calls came, settles them, and returns how many there were. There
	// are at most so many. Settlements may still be under way.
	receive(ctx context.Context, most int, came func()) (int, error)
}

// messagesOver is a round of one contender.
func messagesOver(ctx context.Context, b *measure.Bench, start func(context.Context, *measure.Bench) (*broker, error)) (s measure.Sample, err error) {
	server, err := start(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	conn, err := server.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	s = measure.Sample{}
	for _, links := range []int{1, manyLinks} {
		amount := flow{links: links, alone: b.Size(3000, 600), together: b.Size(10_000, 4000)}
		if links > 1 {
			amount.alone, amount.together = b.Size(10_000, 4000), b.Size(30_000, 8000)
		}
		if err := server.measure(ctx, conn, amount, s); err != nil {
			return nil, fmt.Errorf("%d links: %w", links, err)
		}
	}
	waited, err := server.latency(ctx, conn, b.Size(500, 200))
	if err != nil {
		return nil, fmt.Errorf("latency: %w", err)
	}
	slices.Sort(waited)
	s[sendP50], s[sendP99] = measure.Percentile(waited, 0.5), measure.Percentile(waited, 0.99)
	return s, nil
}

// flow is how much goes over so many links.
type flow struct{ links, alone, together int }

// measure sends messages one at a time, sends more of them at once, and receives all.
func (server *broker) measure(ctx context.Context, conn connection, f flow, s measure.Sample) error {
	queue := fmt.Sprintf("links-%d", f.links)
	if err := server.makes(ctx, queue); err != nil {
		return err
	}
	links := make([]messageSender, f.links)
	for i := range links {
		var err error
		if links[i], err = conn.sender(ctx, queue); err != nil {
			return err
		}
		if err := links[i].sendMany(ctx, underWay); err != nil { // warms up
			return err
		}
	}
	before, err := measure.UsageOf(server.pid)
	if err != nil {
		return err
	}
	own := measure.CPUTime()
	alone, together, received := linkColumns(f.links)
	each := f.alone / f.links
	if s[alone], err = rateOf(f.links, each, func(i int) error {
		for range each {
			if err := links[i].send(ctx); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	more := f.together / f.links / underWay * underWay
	if s[together], err = rateOf(f.links, more, func(i int) error { return links[i].sendMany(ctx, more) }); err != nil {
		return fmt.Errorf("send %d at once: %w", underWay, err)
	}
	total := f.links * (underWay + each + more)
	if s[received], err = server.drain(ctx, queue, f.links, total); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	after, err := measure.UsageOf(server.pid)
	if err != nil {
		return err
	}
	s[serverCPU] = (after.CPU - before.CPU).Seconds() * 1e6 / float64(total)
	s[clientCPU] = (measure.CPUTime() - own).Seconds() * 1e6 / float64(total)
	return server.isEmpty(ctx, queue)
}

// rateOf lets each link send so many messages at the same time, and returns messages per second.
func rateOf(links, each int, f func(link int) error) (float64, error) {
	begun := time.Now()
	err := measure.InParallel(links, links, f)
	return float64(links*each) / time.Since(begun).Seconds(), err
}

// stalled is how long receiving may take in a round.
const stalled = 2 * time.Minute

// drain receives and settles so many messages on so many links of a connection of their own, and
// returns how many a second. The clock stops when the last settlement is sent.
func (server *broker) drain(ctx context.Context, queue string, links, messages int) (rate float64, err error) {
	conn, err := server.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	limited, cancel := context.WithTimeout(ctx, stalled)
	defer cancel()
	receiving, stop := context.WithCancelCause(limited)
	defer stop(nil)
	var left atomic.Int64
	left.Store(int64(messages))
	begun := time.Now()
	err = measure.InParallel(links, links, func(int) error {
		r, err := conn.receiver(ctx, queue)
		if err != nil {
			return err
		}
		for left.Load() > 0 {
			n, err := r.receive(receiving, underWay, nil)
			switch now := left.Add(int64(-n)); {
			case now <= 0:
				stop(nil)
			case err != nil:
				stop(err)
				return fmt.Errorf("%d messages are left: %w", now, context.Cause(receiving)) // that of the first that failed
			}
		}
		return nil
	})
	rate = float64(messages) / time.Since(begun).Seconds()
	switch {
	case err != nil:
		return 0, err
	case server.left != nil && left.Load() < 0:
		return 0, fmt.Errorf("%d messages came twice", -left.Load())
	}
	return rate, sleep.For(ctx, server.lag)
}

// isEmpty waits until a queue has no messages: the last settlements may still be under way.
func (server *broker) isEmpty(ctx context.Context, queue string) error {
	if server.left == nil {
		return nil
	}
	for begun := time.Now(); ; {
		n, err := server.left(ctx, queue)
		switch {
		case err != nil || n == 0:
			return err
		case time.Since(begun) > 30*time.Second:
			return fmt.Errorf("%d messages are left in %s that were settled", n, queue)
		}
		if err := sleep.For(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// latency sends messages to a receiver that waits, one after the other. It returns how long each
// took from before it was sent until it came.
func (server *broker) latency(ctx context.Context, conn connection, messages int) ([]time.Duration, error) {
	if err := server.makes(ctx, latencyQueue); err != nil {
		return nil, err
	}
	s, err := conn.sender(ctx, latencyQueue)
	if err != nil {
		return nil, err
	}
	r, err := conn.receiver(ctx, latencyQueue)
	if err != nil {
		return nil, err
	}
	const uncounted = 20
	messages += uncounted
	receiving, stop := context.WithCancel(ctx)
	defer stop()
	came, settled := make(chan time.Time, 1), make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range messages {
			_, err := r.receive(receiving, 1, func() { came <- time.Now() })
			settled <- err
			if err != nil {
				return
			}
		}
	}()
	took := make([]time.Duration, 0, messages)
	err = func() error {
		for range messages {
			begun := time.Now()
			if err := s.send(ctx); err != nil {
				return err
			}
			if err := <-settled; err != nil {
				return err
			}
			took = append(took, (<-came).Sub(begun))
		}
		return nil
	}()
	stop()
	<-ended
	if err != nil {
		return nil, err
	}
	return took[uncounted:], nil
}

// sliding begins n sends, of which underWay wait for their outcome at once.
func sliding(ctx context.Context, n int, begin func() (wait func(context.Context) error, err error)) error {
	var waits [underWay]func(context.Context) error
	for i := range n + underWay {
		at := i % underWay
		if waits[at] != nil {
			if err := waits[at](ctx); err != nil {
				return err
			}
			waits[at] = nil
		}
		if i < n {
			var err error
			if waits[at], err = begin(); err != nil {
				return err
			}
		}
	}
	return nil
}
