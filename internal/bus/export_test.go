package bus

// Stores are those of the tests of this package. The tests of package bus_test make one of stores
// that this package cannot import.
type Stores = stores

// What those tests do as these do.
var (
	ManySubscriptions = manySubscriptions
	PutTopic          = putTopic
	UntilEmpty        = untilEmpty
	WantOnce          = wantOnce
)
