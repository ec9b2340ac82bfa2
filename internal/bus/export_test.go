package bus

// Stores are those of the tests of this package. The tests of package bus_test make one of stores
// that this package cannot import.
type Stores = stores

// Broker is what TestMessagesAgainstModel drives, with what a client of a server needs.
type Broker = broker

// ClientPatience is how long a client waits for messages where there are none.
const ClientPatience = clientPatience

// What those tests do as these do.
var (
	Drive             = drive
	Opens             = opens
	ManySubscriptions = manySubscriptions
	PutModelQueues    = putModelQueues
	PutTopic          = putTopic
	UntilEmpty        = untilEmpty
	WantOnce          = wantOnce
)
