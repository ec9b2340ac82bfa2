package bus

import "pgregory.net/rapid"

// Stores are those of the tests of this package. The tests of package bus_test make one of stores
// that this package cannot import.
type Stores = stores

// Broker is what the models are compared with.
type Broker = broker

// DriveTopics is driveTopics for a client of a server over the store.
func DriveTopics(t *rapid.T, to Broker, s *Store, topics []MessageQueue) {
	driveTopics(t, to, &storeBroker{Store: s}, topics)
}

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
