package amqp_test

import (
	"context"
	"fmt"
	"net"

	goamqp "github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// printer prints what is sent to it, and has nothing to receive.
type printer struct{}

func (printer) Opened(*amqp.Conn) error { return nil }
func (printer) Closed(*amqp.Conn)       {}

func (printer) AttachIncoming(l *amqp.Incoming) {
	_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) {
		m, err := wire.DecodeMessage(d.Payload)
		if err != nil {
			d.Settle(&wire.Rejected{Error: &wire.Error{Condition: wire.ErrDecodeError}})
			return
		}
		fmt.Printf("%s got %s\n", *l.Attach().Target.Address, m.Data[0])
		d.Settle(&wire.Accepted{})
	}})
}

func (printer) AttachOutgoing(l *amqp.Outgoing) {
	l.Refuse(&wire.Error{Condition: wire.ErrNotFound, Description: "there is nothing to receive"})
}

func (printer) AttachCoordinator(l *amqp.Incoming) {
	l.Refuse(&wire.Error{Condition: wire.ErrNotImplemented})
}

func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	server := amqp.NewServer(amqp.Options{Handler: printer{}})
	go func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = server.ServeConn(ctx, nc) }()
		}
	}()

	conn, err := goamqp.Dial(ctx, "amqp://"+listener.Addr().String(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	sender, err := session.NewSender(ctx, "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sender.Send(ctx, goamqp.NewMessage([]byte("an order")), nil))
	_, err = session.NewReceiver(ctx, "orders", nil)
	fmt.Println(err)

	conn.Close()
	listener.Close()
	fmt.Println(server.Shutdown(ctx))
	// Output:
	// orders got an order
	// <nil>
	// *Error{Condition: amqp:not-found, Description: there is nothing to receive, Info: map[]}
	// <nil>
}
