package servicebus

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	api "github.com/forebayhq/forebay/client"
)

// busServer is Forebay in a process of its own, on SQLite, serving Service Bus's clients.
type busServer struct {
	*serving.Child
	*api.Client
	release func() error
}

func startBusServer(ctx context.Context, b *measure.Bench) (*busServer, error) {
	place, err := b.SQLite().Place(ctx)
	if err != nil {
		return nil, err
	}
	spec := serving.ChildSpec{Role: "forebay", Database: place.Database, Blobs: filepath.Join(place.Dir, "blobs"), Model: "http://127.0.0.1:9", ServiceBus: "127.0.0.1:0"}
	if b.CPUProfile != "" {
		spec.Profile = b.CPUProfile + ".server"
	}
	c, err := serving.StartChild(ctx, spec)
	if err != nil {
		return nil, errors.Join(err, place.Release())
	}
	s := &busServer{Child: c, release: place.Release}
	if s.Client, err = api.New(api.Options{BaseURL: c.URL}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *busServer) close() error { return errors.Join(s.Child.Stop(), s.release()) }

// makes makes a queue whose locks do not end in the middle of a measurement.
func (s *busServer) makes(ctx context.Context, queue string) error {
	_, err := s.PutMessageQueue(ctx, queue, forebay.MessageQueueSettings{LockSeconds: lockSeconds})
	return err
}

func (s *busServer) left(ctx context.Context, queue string) (int, error) {
	_, q, err := s.FindQueue(ctx, queue)
	if err != nil {
		return 0, err
	}
	return int(q.Active + q.Locked), nil
}

func (s *busServer) broker(connect func(context.Context) (connection, error)) *broker {
	return &broker{pid: s.PID, makes: s.makes, left: s.left, stop: s.close, connect: connect}
}

func startForebaySDK(ctx context.Context, b *measure.Bench) (*broker, error) {
	s, err := startBusServer(ctx, b)
	if err != nil {
		return nil, err
	}
	return s.broker(func(context.Context) (connection, error) { return s.sdk() }), nil
}

func startForebayAMQP(ctx context.Context, b *measure.Bench) (*broker, error) {
	s, err := startBusServer(ctx, b)
	if err != nil {
		return nil, err
	}
	return s.broker(func(ctx context.Context) (connection, error) { return s.dial(ctx) }), nil
}

// dial connects with go-amqp. A server without keys takes any.
func (s *busServer) dial(ctx context.Context) (*plainAMQP, error) {
	return dialAMQP(ctx, s.Bus, amqp.SASLTypePlain("RootManageSharedAccessKey", "any"))
}

// sdk connects with Microsoft's client.
func (s *busServer) sdk() (sdkClient, error) {
	c, err := azservicebus.NewClientFromConnectionString(
		"Endpoint=sb://"+s.Bus+";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=any;UseDevelopmentEmulator=true;", nil)
	return sdkClient{c}, err
}

// sdkClient is azservicebus's client.
type sdkClient struct{ *azservicebus.Client }

func (c sdkClient) close() error { return c.Close(context.Background()) }

func (c sdkClient) sender(_ context.Context, queue string) (messageSender, error) {
	s, err := c.NewSender(queue, nil)
	return sdkSender{s}, err
}

func (c sdkClient) receiver(_ context.Context, queue string) (messageReceiver, error) {
	r, err := c.NewReceiverForQueue(queue, nil)
	return sdkReceiver{r}, err
}

type sdkSender struct{ *azservicebus.Sender }

var sdkMessage = &azservicebus.Message{Body: []byte(measure.Text)}

func (s sdkSender) send(ctx context.Context) error { return s.SendMessage(ctx, sdkMessage, nil) }

// sendMany sends batches, one after the other, as programs with this client do.
func (s sdkSender) sendMany(ctx context.Context, n int) error {
	for range n / underWay {
		batch, err := s.NewMessageBatch(ctx, nil)
		if err != nil {
			return err
		}
		for range underWay {
			if err := batch.AddMessage(sdkMessage, nil); err != nil {
				return err
			}
		}
		if err := s.SendMessageBatch(ctx, batch, nil); err != nil {
			return err
		}
	}
	return nil
}

type sdkReceiver struct{ *azservicebus.Receiver }

func (r sdkReceiver) receive(ctx context.Context, most int, came func()) (int, error) {
	got, err := r.ReceiveMessages(ctx, most, nil)
	if err != nil {
		return 0, err
	}
	if came != nil {
		came()
	}
	return len(got), completeAll(ctx, r, got)
}

// completer is a receiver of a queue or of a session.
type completer interface {
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
}

// completeAll completes messages, all at the same time.
func completeAll(ctx context.Context, r completer, messages []*azservicebus.ReceivedMessage) error {
	return measure.InParallel(len(messages), len(messages), func(i int) error { return r.CompleteMessage(ctx, messages[i], nil) })
}
