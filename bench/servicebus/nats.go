package servicebus

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
)

// ServeNATS does what the program nats-server does with a configuration file.
func ServeNATS(ctx context.Context, config string) error {
	o, err := nats.ConfigureOptions(flag.NewFlagSet("nats-server", flag.ContinueOnError), []string{"-c", config}, nil, nil, nil)
	if err != nil {
		return err
	}
	s, err := nats.NewServer(o)
	if err != nil {
		return err
	}
	if err := nats.Run(s); err != nil {
		return err
	}
	if !s.ReadyForConnections(time.Minute) {
		return errors.New("NATS takes no connections")
	}
	if js := s.JetStreamConfig(); js == nil || !js.SyncAlways {
		return fmt.Errorf("JetStream does not sync always: %+v", js)
	}
	fmt.Println(s.Addr())
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

func startNATS(ctx context.Context, b *measure.Bench) (*broker, error) {
	dir, err := filepath.Abs(b.Dir)
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "nats-"); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nats.conf")
	settings := fmt.Sprintf("listen: \"127.0.0.1:-1\"\njetstream { store_dir: %q, sync_interval: always }\n", dir)
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c, err := serving.StartChild(ctx, serving.ChildSpec{Role: "nats", Config: config})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop := func() error { return errors.Join(c.Stop(), os.RemoveAll(dir)) }
	admin, err := dialNATS(c.Address)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &broker{
		pid: c.PID, makes: admin.makes, left: admin.left,
		connect: func(context.Context) (connection, error) { return dialNATS(c.Address) },
		stop:    func() error { return errors.Join(admin.close(), stop()) },
	}, nil
}

// natsConn is a connection of NATS. A queue is a stream whose messages go once they are settled,
// with one consumer that its receivers share.
type natsConn struct {
	*natsclient.Conn
	jetstream.JetStream
}

func dialNATS(address string) (natsConn, error) {
	c, err := natsclient.Connect("nats://" + address)
	if err != nil {
		return natsConn{}, err
	}
	js, err := jetstream.New(c)
	return natsConn{c, js}, err
}

// close waits until the server has read what was sent before.
func (c natsConn) close() error {
	err := c.FlushTimeout(time.Minute)
	c.Close()
	return err
}

func (c natsConn) makes(ctx context.Context, queue string) error {
	stream, err := c.CreateStream(ctx, jetstream.StreamConfig{Name: queue, Subjects: []string{queue}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage})
	if err != nil {
		return err
	}
	_, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: queue, AckPolicy: jetstream.AckExplicitPolicy, AckWait: lockSeconds * time.Second, MaxAckPending: 2 * manyLinks * underWay,
	})
	return err
}

func (c natsConn) left(ctx context.Context, queue string) (int, error) {
	stream, err := c.Stream(ctx, queue)
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int(info.State.Msgs), nil
}

func (c natsConn) sender(_ context.Context, queue string) (messageSender, error) {
	return natsSender{c.JetStream, queue}, nil
}

func (c natsConn) receiver(ctx context.Context, queue string) (messageReceiver, error) {
	consumer, err := c.Consumer(ctx, queue, queue)
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(underWay))
	return natsReceiver{messages}, err
}

type natsSender struct {
	jetstream.JetStream
	queue string
}

func (s natsSender) send(ctx context.Context) error {
	_, err := s.Publish(ctx, s.queue, []byte(measure.Text))
	return err
}

func (s natsSender) sendMany(ctx context.Context, n int) error {
	return sliding(ctx, n, func() (func(context.Context) error, error) {
		ack, err := s.PublishAsync(s.queue, []byte(measure.Text))
		return func(ctx context.Context) error {
			select {
			case <-ack.Ok():
				return nil
			case err := <-ack.Err():
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}, err
	})
}

type natsReceiver struct{ jetstream.MessagesContext }

func (r natsReceiver) receive(ctx context.Context, _ int, came func()) (int, error) {
	m, err := r.Next(jetstream.NextContext(ctx))
	if err != nil {
		return 0, err
	}
	if came != nil {
		came()
	}
	return 1, m.Ack()
}
