package bus_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servicebus"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
	"github.com/forebayhq/forebay/internal/stores"
	"pgregory.net/rapid"
)

type allEngine = dbtest.Engine[*stores.Stores]

// served is a server of Service Bus's clients over stores, and a client.
type served struct {
	*azservicebus.Client
	connect func() (*azservicebus.Client, error) // another client
	stop    context.CancelFunc
	done    sync.WaitGroup
	mu      sync.Mutex
	clients []*azservicebus.Client
}

// client is what a client has besides the address.
type client struct {
	key   forebay.APIKey
	retry azservicebus.RetryOptions
}

// anybody is a client of a server without API keys. It tries everything once.
var anybody = client{forebay.APIKey{ID: "any", Key: "any"}, azservicebus.RetryOptions{MaxRetries: -1}}

// serve serves stores to a client.
func serve(t rapid.TB, s *stores.Stores, l net.Listener, dial func(context.Context) (net.Conn, error), c client) *served {
	ctx, stop := context.WithCancel(context.Background())
	known := keys.NewService(s.Keys, nil)
	log := slog.New(slog.DiscardHandler)
	endpoint := servicebus.New(servicebus.Options{
		Messages: messaging.New(messaging.Options{Store: s.Bus}), Verifier: auth.New(auth.Options{Keys: known, Logger: log}), Logger: log,
	})
	b := &served{stop: stop}
	b.done.Go(func() {
		o := servicebus.ServeOptions{Connections: connections.New(0), HTTP: &http.Server{Handler: http.NotFoundHandler()}}
		if err := endpoint.Serve(ctx, l, o); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	b.connect = func() (*azservicebus.Client, error) {
		made, err := azservicebus.NewClientFromConnectionString(
			"Endpoint=sb://"+l.Addr().String()+";SharedAccessKeyName="+c.key.ID+";SharedAccessKey="+c.key.Key+";UseDevelopmentEmulator=true",
			&azservicebus.ClientOptions{
				RetryOptions:     c.retry,
				NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return dial(ctx) },
			})
		b.mu.Lock()
		defer b.mu.Unlock()
		b.clients = append(b.clients, made)
		return made, err
	}
	var err error
	if b.Client, err = b.connect(); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *served) close(t rapid.TB) {
	for _, c := range b.clients {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	b.stop()
	b.done.Wait()
}

// listenFor returns where an engine's clients connect. In a bubble of synctest only what stays in
// the process lets time pass.
func listenFor(t rapid.TB, e allEngine) (net.Listener, func(context.Context) (net.Conn, error)) {
	if _, ok := e.(dbtest.Bubble[*stores.Stores]); ok {
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		return l, l.dial
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
}

// pipeListener is a listener within the process.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) dial(context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- local{server}:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return loopback }

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5672}

// local is a connection from this machine.
type local struct{ net.Conn }

func (local) RemoteAddr() net.Addr { return loopback }

// clockOf is an engine's clock.
type clockOf struct {
	allEngine
	s *stores.Stores
}

func (c clockOf) Pass(d time.Duration) { c.allEngine.Pass(c.s, d) }

// amqpFixture opens all stores, and knows how many receivers wait in them. Its clocks begin now,
// for the client's signatures end by the clock of this machine.
var amqpFixture = dbtest.Fixture[*stores.Stores]{
	Begin:  time.Now,
	Open:   all.Open,
	DB:     all.DB,
	Parked: func(s *stores.Stores, _ *db.Tx) int { return len(bus.Key.In(s.DB.Writer).Waiters) },
}

// overAMQP runs random operations of a client of a server, on every engine.
func overAMQP(t *testing.T, run func(*rapid.T, bus.Broker, *bus.Stores)) {
	raced.Skip(t, raced.Sequential)
	amqpFixture.OnEveryEngine(t, func(t *rapid.T, e allEngine) {
		s := e.Open(t)
		defer func() { s.DB.Close() }()
		l, dial := listenFor(t, e)
		served := serve(t, s, l, dial, anybody)
		defer served.close(t)
		to := newSDKBroker(served.Client, s).broker(e)
		run(t, to, &bus.Stores{DB: s.DB, Queues: s.Queues, Audit: s.Audit, Bus: s.Bus})
	})
}

// TestMessagesAgainstModelOverAMQP drives a server by Azure's SDK for Go as
// TestMessagesAgainstModel drives the store.
func TestMessagesAgainstModelOverAMQP(t *testing.T) {
	overAMQP(t, func(t *rapid.T, to bus.Broker, s *bus.Stores) {
		bus.Drive(t, to, nil, bus.PutModelQueues(t, s, forebay.DefaultTenant))
	})
}

// TestTopicModelOverAMQP sends to topics and receives from subscriptions by Azure's SDK for Go, as
// TestTopicModel does by the store's own calls.
func TestTopicModelOverAMQP(t *testing.T) {
	overAMQP(t, func(t *rapid.T, to bus.Broker, s *bus.Stores) {
		bus.DriveTopics(t, to, s.Bus, bus.PutModelTopics(t, s, forebay.DefaultTenant))
	})
}
