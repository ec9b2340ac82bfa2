package bus

import (
	"maps"
	"slices"
	"testing"

	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"pgregory.net/rapid"
)

// Stores are those of the tests of this package. The tests of package bus_test make one of stores
// that this package cannot import.
type Stores = stores

// SettlementsOf are those of the store by its own calls.
func SettlementsOf(s *Store) brokerSettlements { return &storeBroker{Store: s} }

// Broker is what the models are compared with.
type Broker = broker

// DriveTopics is driveTopics for a client of a server over the store.
func DriveTopics(t *rapid.T, to Broker, s *Store, topics []MessageQueue) {
	driveTopics(t, to, &storeBroker{Store: s}, topics)
}

// RunBrokerSuite runs each test of brokerSuite by a broker. It makes one for each, on an empty
// database.
func RunBrokerSuite(t *testing.T, run func(t *testing.T, test func(*testing.T, *Stores, dbtest.Engine[*Stores]))) {
	for _, name := range slices.Sorted(maps.Keys(brokerSuite)) {
		t.Run(name, func(t *testing.T) {
			if slices.Contains(busSuiteOfRows, name) {
				raced.Skip(t, raced.MuchData)
			}
			run(t, func(t *testing.T, s *Stores, e dbtest.Engine[*Stores]) {
				brokerSuite[name](t, s, &clock{t: t, engine: e, stores: []*stores{s}})
			})
		})
	}
}

// EmptyBus removes what a test of the suite has left.
const EmptyBus = emptyBus

// ClientPatience is how long a client waits for messages where there are none.
const ClientPatience = clientPatience

// What those tests do as these do.
var (
	Drive             = drive
	Opens             = opens
	ManySubscriptions = manySubscriptions
	PutModelTopics    = putModelTopics
	PutModelQueues    = putModelQueues
	PutTopic          = putTopic
	UntilEmpty        = untilEmpty
	WantOnce          = wantOnce
)
