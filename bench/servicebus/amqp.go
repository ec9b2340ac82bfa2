package servicebus

import (
	"context"
	"fmt"
	"net"

	"github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	server "github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// plainAMQP is a connection of go-amqp. Each link has a session of its own, as those of
// azservicebus have.
type plainAMQP struct {
	*amqp.Conn
	prefix string // of the addresses of queues
	// creditOnce says that a receiver gives credit again only when all is used. Otherwise go-amqp
	// tops it up.
	creditOnce bool
}

func dialAMQP(ctx context.Context, address string, sasl amqp.SASLType) (*plainAMQP, error) {
	c, err := amqp.Dial(ctx, "amqp://"+address, &amqp.ConnOptions{SASLType: sasl})
	return &plainAMQP{Conn: c}, err
}

func (c *plainAMQP) close() error { return c.Close() }

func (c *plainAMQP) sender(ctx context.Context, queue string) (messageSender, error) {
	session, err := c.NewSession(ctx, nil)
	if err != nil {
		return nil, err
	}
	s, err := session.NewSender(ctx, c.prefix+queue, nil)
	return amqpSender{s}, err
}

// receiver returns a link that settles at once and does not wait for an answer.
func (c *plainAMQP) receiver(ctx context.Context, queue string) (messageReceiver, error) {
	session, err := c.NewSession(ctx, nil)
	if err != nil {
		return nil, err
	}
	if !c.creditOnce {
		r, err := session.NewReceiver(ctx, c.prefix+queue, &amqp.ReceiverOptions{Credit: underWay})
		return &amqpReceiver{Receiver: r}, err
	}
	r, err := session.NewReceiver(ctx, c.prefix+queue, &amqp.ReceiverOptions{Credit: -1})
	return &amqpReceiver{Receiver: r, credits: true}, err
}

type amqpSender struct{ *amqp.Sender }

func amqpMessage() *amqp.Message {
	return &amqp.Message{Header: &amqp.MessageHeader{Durable: true}, Data: [][]byte{[]byte(measure.Text)}}
}

func (s amqpSender) send(ctx context.Context) error { return s.Send(ctx, amqpMessage(), nil) }

func (s amqpSender) sendMany(ctx context.Context, n int) error {
	return sliding(ctx, n, func() (func(context.Context) error, error) {
		receipt, err := s.SendWithReceipt(ctx, amqpMessage(), nil)
		return func(ctx context.Context) error {
			state, err := receipt.Wait(ctx)
			if _, ok := state.(*amqp.StateAccepted); err == nil && !ok {
				return fmt.Errorf("a message was not accepted: %v", state)
			}
			return err
		}, err
	})
}

type amqpReceiver struct {
	*amqp.Receiver
	credits bool // it gives credit itself
	credit  int  // what is left of that
}

func (r *amqpReceiver) receive(ctx context.Context, _ int, came func()) (int, error) {
	if r.credits && r.credit == 0 {
		if err := r.IssueCredit(underWay); err != nil {
			return 0, err
		}
		r.credit = underWay
	}
	m, err := r.Receive(ctx, nil)
	if err != nil {
		return 0, err
	}
	if came != nil {
		came()
	}
	r.credit--
	return 1, r.AcceptMessage(ctx, m)
}

// startBareAMQP starts Forebay's AMQP layer with nothing behind it.
func startBareAMQP(ctx context.Context, _ *measure.Bench) (*broker, error) {
	c, err := serving.StartChild(ctx, serving.ChildSpec{Role: "amqp"})
	if err != nil {
		return nil, err
	}
	return &broker{
		pid: c.PID, stop: c.Stop, makes: func(context.Context, string) error { return nil },
		connect: func(ctx context.Context) (connection, error) { return dialAMQP(ctx, c.Address, nil) },
	}, nil
}

// bareAMQP accepts messages and forgets them, and has any number to receive. Only those of
// latencyQueue are passed on.
type bareAMQP struct{ passed chan []byte }

// With a file it is a keptAMQP.
func ServeBareAMQP(ctx context.Context, file string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	bare := bareAMQP{make(chan []byte, underWay)}
	options := server.Options{Handler: bare}
	if file != "" {
		kept, err := openDisk(file)
		if err != nil {
			return err
		}
		options.Handler = keptAMQP{bare, kept}
	}
	s := server.NewServer(options)
	context.AfterFunc(ctx, func() { listener.Close() })
	for {
		nc, err := listener.Accept()
		if err != nil {
			return nil // the benchmark is over
		}
		go func() { _ = s.ServeConn(ctx, nc) }()
	}
}

func (bareAMQP) Opened(*server.Conn) error { return nil }
func (bareAMQP) Closed(*server.Conn)       {}

func (bareAMQP) AttachCoordinator(l *server.Incoming) {
	l.Refuse(&wire.Error{Condition: wire.ErrNotImplemented})
}

func (h bareAMQP) AttachIncoming(l *server.Incoming) {
	pass := wire.ValueOr(l.Attach().Target.Address, "") == latencyQueue
	_ = l.Accept(server.IncomingOptions{Credit: 1000, Receive: func(d *server.Delivery) {
		if pass {
			h.passed <- d.Payload
		}
		d.Settle(&wire.Accepted{})
	}})
}

func (h bareAMQP) AttachOutgoing(l *server.Outgoing) { h.send(l, server.OutgoingOptions{}) }

// send sends messages for as long as the client takes them.
func (h bareAMQP) send(l *server.Outgoing, o server.OutgoingOptions) {
	if l.Accept(o) != nil {
		return
	}
	payload, err := (&wire.Message{Data: [][]byte{[]byte(measure.Text)}}).Append(nil)
	if err != nil {
		panic(err) // it has one section
	}
	for n := uint32(0); ; n++ {
		if _, _, err := l.WaitCredit(l.Context()); err != nil {
			return
		}
		if wire.ValueOr(l.Attach().Source.Address, "") == latencyQueue {
			select {
			case payload = <-h.passed:
			case <-l.Context().Done():
				return
			}
		}
		tag := fmt.Appendf(nil, "%d", n)
		if _, err := l.Send(l.Context(), server.Transfer{Tag: tag, Payload: payload}); err != nil {
			return
		}
	}
}
