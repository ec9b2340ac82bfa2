// Package servicebus_test runs the SDKs of Azure Service Bus, and our connectors to the service,
// against a server.
package servicebus_test

import (
	"flag"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// serviceBus is a server without keys that serves Service Bus's protocol on this machine.
type serviceBus struct {
	*client.Client
	connection string // string, of the emulator's kind
	address    string
}

func startServiceBus(t *testing.T, change func(*server.Options)) serviceBus {
	t.Helper()
	o := server.Options{
		Database: newDatabase(t, "sqlite"), Listen: "127.0.0.1:0", ShutdownTimeout: time.Second,
		Logger:     slog.New(slog.NewTextHandler(t.Output(), nil)),
		ServiceBus: server.ServiceBus{Plain: "127.0.0.1:0"},
	}
	if change != nil {
		change(&o)
	}
	s := servertest.UntilEnd(t, o)
	c, err := client.New(client.Options{BaseURL: "http://" + s.Addr(t.Context()).String()})
	if err != nil {
		t.Fatal(err)
	}
	_, plain := s.ServiceBusAddr(t.Context())
	return serviceBus{Client: c, address: plain.String(), connection: "Endpoint=sb://" + plain.String() + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"}
}

// onEveryDatabase runs a test for SQLite and for PostgreSQL.
func onEveryDatabase(t *testing.T, test func(t *testing.T, database string)) {
	t.Parallel()
	for _, database := range []string{"sqlite", "postgresql"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			test(t, database)
		})
	}
}

// newDatabase makes a new database of that kind.
func newDatabase(t *testing.T, kind string) string {
	if kind == "postgresql" {
		return dbtest.Postgres(t)
	}
	return "sqlite:" + dbtest.SQLite(t)
}

// on has a server use a database.
func on(database string) func(*server.Options) {
	return func(o *server.Options) { o.Database = database }
}

// queue makes a queue.
func (b serviceBus) queue(t *testing.T, name string, settings forebay.MessageQueueSettings) {
	t.Helper()
	if _, err := b.PutMessageQueue(t.Context(), name, settings); err != nil {
		t.Fatal(err)
	}
}

// subscription makes a topic with a subscription.
func (b serviceBus) subscription(t *testing.T, topic, name string, settings forebay.SubscriptionSettings) {
	t.Helper()
	if _, err := b.PutTopic(t.Context(), topic, forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutSubscription(t.Context(), topic, name, settings); err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) {
	if raw, ok := os.LookupEnv(azureVariable); ok {
		os.Exit(runAzureProcess(raw))
	}
	// Tests here wait for locks to end, and for programs, more than they work.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
