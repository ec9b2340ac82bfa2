package bus_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"pgregory.net/rapid"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/stores"
)

// TestBusOverAMQP runs the suite of TestBus that brokers share by Azure's SDK for Go, against a
// server.
func TestBusOverAMQP(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		bus.RunBrokerSuite(t, func(t *testing.T, test func(*testing.T, *bus.Stores, dbtest.Engine[*bus.Stores])) {
			e := amqpFixture.Bubble(filepath.Join(t.TempDir(), "f.db"))
			synctest.Test(t, func(t *testing.T) { runOverAMQP(t, e, e.Open(t), test) })
		})
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		c := amqpFixture.ClockSchema(dbtest.NewClockServer(t))
		if err := c.Open(t).DB.Close(); err != nil {
			t.Fatal(err)
		}
		bus.RunBrokerSuite(t, func(t *testing.T, test func(*testing.T, *bus.Stores, dbtest.Engine[*bus.Stores])) {
			c.Run(t, bus.EmptyBus)
			c.Advance(time.Since(time.UnixMilli(c.Now()))) // the client's signatures are by this machine's
			runOverAMQP(t, c, c.Reopen(t), test)
		})
	})
}

// runOverAMQP runs a test by a client of a server over these stores. The suite's tenant has the
// name t and the number 1.
func runOverAMQP(t *testing.T, e allEngine, s *stores.Stores, test func(*testing.T, *bus.Stores, dbtest.Engine[*bus.Stores])) {
	t.Cleanup(func() { s.DB.Close() })
	key, err := keys.NewService(s.Keys, nil).Create(t.Context(), "t", []forebay.Scope{forebay.ScopeManage}, nil, forebay.Budget{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	if no, err := s.Queues.EnsureTenant(t.Context(), "t"); err != nil || no != 1 {
		t.Fatalf("the tenant of the suite has the number %d (%v)", no, err)
	}
	l, dial := listenFor(t, e)
	served := serve(t, s, l, dial, client{key, azservicebus.RetryOptions{MaxRetries: 5, RetryDelay: time.Millisecond, MaxRetryDelay: 10 * time.Millisecond}})
	t.Cleanup(func() { served.close(t) })
	b := newSDKBroker(served.Client, s)
	b.own = served.connect
	test(t, &bus.Stores{DB: s.DB, Queues: s.Queues, Audit: s.Audit, Bus: s.Bus, Broker: b.broker(e)}, busEngine{e, s})
}

// busEngine is an engine of all stores as the suite sees it.
type busEngine struct {
	allEngine
	s *stores.Stores
}

func (e busEngine) Open(t rapid.TB) *bus.Stores {
	t.Fatal("the suite opens stores beside those of the server only")
	return nil
}

func (e busEngine) Reopen(t rapid.TB) *bus.Stores              { return e.Open(t) }
func (e busEngine) Pass(_ *bus.Stores, d time.Duration)        { e.allEngine.Pass(e.s, d) }
func (e busEngine) Settle(_ *bus.Stores, done <-chan struct{}) { e.allEngine.Settle(e.s, done) }
