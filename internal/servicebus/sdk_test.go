package servicebus

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
	"github.com/forebayhq/forebay/internal/stores"
)

// bubble is an endpoint whose clock a test moves, and a client of Azure's SDK for Go.
type bubble struct {
	*testing.T
	*Endpoint
	*azservicebus.Client
	log   *written
	store *stores.Stores
}

// inBubble runs a test with a clock of its own. The endpoint has no keys.
func inBubble(t *testing.T, maxMessage int64, test func(bubble)) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "forebay.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := stores.Open(t.Context(), db.Options{Path: path, Serve: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.DB.Close()
		said := &written{}
		log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), said), nil))
		e := New(Options{Messages: messaging.New(messaging.Options{Store: s.Bus, MaxMessageBytes: maxMessage}), Verifier: auth.New(auth.Options{Keys: keys.NewService(s.Keys, nil), Logger: log}), Logger: log})
		serving, stop := context.WithCancel(context.Background())
		defer stop()
		client, err := azservicebus.NewClientFromConnectionString("Endpoint=sb://localhost;SharedAccessKeyName=any;SharedAccessKey=any", &azservicebus.ClientOptions{
			NewWebSocketConn: func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				near, far := net.Pipe()
				go e.serveAMQP(serving, remoteConn{far, "127.0.0.1:5671"}, nil)
				return near, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		test(bubble{t, e, client, said, s})
	})
}

func (b bubble) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// peer is a client that sends and reads single frames.
func (b bubble) peer() (p *peer, leave func()) {
	b.Helper()
	near, far := net.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	go b.serveAMQP(ctx, remoteConn{far, "127.0.0.1:5671"}, nil)
	return open(b, near, "any", "any"), func() { near.Close(); stop() }
}

func (b bubble) queue(name string, settings forebay.MessageQueueSettings) {
	b.Helper()
	_, _, err := b.messages.Queues.Put(b.Context(), forebay.DefaultTenant, name, settings)
	b.ok(err)
}

// A message for which there is no memory now is one that the client sends again.
func TestAMessageWithoutMemoryIsSentAgain(t *testing.T) {
	inBubble(t, forebay.DefaultMaxMessageBytes, func(b bubble) {
		b.queue("orders", forebay.MessageQueueSettings{})
		sender, err := b.NewSender("orders", nil)
		b.ok(err)
		b.ok(sender.SendMessage(b.Context(), &azservicebus.Message{Body: []byte("small")}, nil))
		others := b.received.Claim("other")
		b.ok(others.Grow(b.Context(), b.received.Capacity()))
		time.AfterFunc(11*time.Second, others.Release) // when the first attempt was refused
		b.ok(sender.SendMessage(b.Context(), &azservicebus.Message{Body: make([]byte, 300_000)}, nil))
		found, _, err := b.messages.Messages.Peek(b.Context(), forebay.DefaultTenant, "orders", messaging.PeekFilter{})
		if b.ok(err); len(found) != 2 {
			b.Errorf("there are %d messages", len(found))
		}
	})
}

// A batch that the SDK takes for full is one that the server takes.
func TestABatchIsNoLargerThanAMessageMayBe(t *testing.T) {
	inBubble(t, 100_000, func(b bubble) {
		b.queue("orders", forebay.MessageQueueSettings{})
		sender, err := b.NewSender("orders", nil)
		b.ok(err)
		batch, err := sender.NewMessageBatch(b.Context(), nil)
		for b.ok(err); err == nil; {
			err = batch.AddMessage(&azservicebus.Message{Body: make([]byte, 10_000)}, nil)
		}
		if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
			b.Fatal(err)
		}
		b.ok(sender.SendMessageBatch(b.Context(), batch, nil))
	})
}

// A receiver that waits keeps its queue, which is deleted when idle.
func TestAWaitingReceiverKeepsItsQueue(t *testing.T) {
	inBubble(t, forebay.DefaultMaxMessageBytes, func(b bubble) {
		b.queue("answers", forebay.MessageQueueSettings{AutoDeleteOnIdleSeconds: 300})
		time.AfterFunc(time.Hour, func() {
			_, err := b.messages.Messages.Send(b.Context(), forebay.DefaultTenant, "answers", []forebay.NewMessage{{BodyBase64: []byte("late")}})
			if err != nil {
				b.Errorf("after an hour: %v", err)
			}
		})
		receiver, err := b.NewReceiverForQueue("answers", nil)
		b.ok(err)
		got, err := receiver.ReceiveMessages(b.Context(), 1, nil)
		if b.ok(err); len(got) != 1 || string(got[0].Body) != "late" {
			b.Errorf("received %d messages", len(got))
		}
	})
}

// Some clients renew the lock by the annotation that the service sends beside the delivery tag.
func TestADeliveryTellsItsLockToken(t *testing.T) {
	inBubble(t, forebay.DefaultMaxMessageBytes, func(b bubble) {
		b.queue("orders", forebay.MessageQueueSettings{})
		sender, err := b.NewSender("orders", nil)
		b.ok(err)
		for _, mode := range []azservicebus.ReceiveMode{azservicebus.ReceiveModePeekLock, azservicebus.ReceiveModeReceiveAndDelete} {
			b.ok(sender.SendMessage(b.Context(), &azservicebus.Message{Body: []byte("small")}, nil))
			receiver, err := b.NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{ReceiveMode: mode})
			b.ok(err)
			got, err := receiver.ReceiveMessages(b.Context(), 1, nil)
			b.ok(err)
			token, ok := got[0].RawAMQPMessage.DeliveryAnnotations["x-opt-lock-token"]
			if ok != (mode == azservicebus.ReceiveModePeekLock) {
				b.Fatalf("the annotation is %v in mode %d", token, mode)
			}
			if ok {
				b.ok(receiver.RenewMessageLock(b.Context(), got[0], nil)) // by the annotation, if there is one
				b.ok(receiver.CompleteMessage(b.Context(), got[0], nil))
			}
			b.ok(receiver.Close(b.Context()))
		}
	})
}
