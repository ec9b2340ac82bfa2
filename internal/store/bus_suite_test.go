package store

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// busSuite is what queues of messages, sessions and topics keep to whatever database they are in. Each test
// gets an empty store and the clock that it goes by.
var busSuite = map[string]func(*testing.T, *Store, *clock){
	"Receivers are woken":                  testReceiversAreWoken,
	"Receivers that give up leave nothing": testReceiversThatGiveUpLeaveNothing,
	"Receive is bounded in bytes":          testReceiveIsBoundedInBytes,
	"Concurrent receivers":                 testConcurrentReceivers,
	"Delete beyond locked":                 testDeleteBeyondLocked,
	"Drop while receiving":                 testDropWhileReceiving,
	"Drop message queue":                   testDropMessageQueue,
	"Message queue limit":                  testMessageQueueLimit,
	"Queue settings that stay":             testQueueSettingsThatStay,

	"Expiry waits for the lock":           testExpiryWaitsForTheLock,
	"Activation wakes":                    testActivationWakes,
	"Many are activated":                  testManyAreActivated,
	"Message ids are forgotten":           testMessageIDsAreForgotten,
	"Idle queues":                         testIdleQueues,
	"Idle topics":                         testIdleTopics,
	"Use keeps a queue":                   testUseKeepsAQueue,
	"Held and scheduled keep their queue": testHeldAndScheduledKeepTheirQueue,
	"The last lock ends":                  testTheLastLockEnds,
	"The last lock of a deferred message": testTheLastLockOfADeferredMessageEnds,
	"Forwarding of a backlog":             testForwardingOfABacklog,
	"Session receivers are woken":         testSessionReceiversAreWoken,
	"Session lock ends":                   testSessionLockEnds,
	"Sessions are forgotten":              testSessionsAreForgotten,
	"Sessions in order":                   testSessionsInOrder,
	"Sessions are listed":                 testSessionsAreListed,
	"Drop queue with sessions":            testDropQueueWithSessions,

	"Topic fan-out":                       testTopicFanOut,
	"Filter errors":                       testFilterErrors,
	"Topic settings":                      testTopicSettings,
	"Forwarding through topics":           testForwardingThroughTopics,
	"Forwarding to Forebay's topics":      testNothingIsForwardedToOurTopics,
	"Fan-out limit":                       testFanOutLimit,
	"Subscriptions and rules are bounded": testSubscriptionsAndRulesAreBounded,
	"Drop topic":                          testDropTopic,
	"Idle subscription":                   testIdleSubscription,
	"Rules of another process":            testRulesOfAnotherProcess,
	"Publish":                             testPublish,
	"A postponed message keeps its topic": testPostponedMessageKeepsItsTopic,
	"Unreadable rule":                     testUnreadableRule,
}

func TestBus(t *testing.T) {
	t.Parallel()
	suite := slices.Sorted(maps.Keys(busSuite))
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		for _, name := range suite {
			t.Run(name, func(t *testing.T) {
				e := bubble{filepath.Join(t.TempDir(), "f.db")}
				synctest.Test(t, func(t *testing.T) { runWithClock(t, e, e.open(t), busSuite[name]) })
			})
		}
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		c := &clockSchema{server: newClockServer(t), name: "bus"}
		if err := c.open(t).DB.Close(); err != nil {
			t.Fatal(err)
		}
		for _, name := range suite {
			t.Run(name, func(t *testing.T) {
				c.t = t
				c.server.run(t, emptyBus)
				runWithClock(t, c, c.reopen(t), busSuite[name])
			})
		}
	})
}

// emptyBus removes what a test of the suite has left: to make all tables anew would take longer than most tests.
const emptyBus = `SET search_path = bus;
DELETE FROM messages; DELETE FROM bodies; DELETE FROM sessions; DELETE FROM message_ids; DELETE FROM rules; DELETE FROM queues`

func runWithClock(t *testing.T, e engine, s *Store, test func(*testing.T, *Store, *clock)) {
	t.Cleanup(func() { s.DB.Close() })
	test(t, s, &clock{t: t, engine: e, stores: []*Store{s}})
}

// clock is the time of a database. It passes only when the test says so.
type clock struct {
	engine
	t      *testing.T
	stores []*Store // those that are open
}

func (c *clock) time() time.Time { return time.UnixMilli(c.now()) }

// pass returns once the store has done what there is to do at the later time.
func (c *clock) pass(d time.Duration) {
	c.t.Helper()
	c.engine.pass(c.stores[0], d)
	c.quiet()
}

// quiet returns once nothing is left that the stores have to do at this time.
func (c *clock) quiet() {
	c.t.Helper()
	for _, s := range c.stores {
		c.settle(s, nil)
		if err := rest(s); err != nil {
			c.t.Fatal(err)
		}
	}
}

// rest returns once a store finds that nothing is left for it to do at this time without being asked.
func rest(s *Store) error {
	for {
		due, err := transactIn(background, busKey, s.DB.writer, op{stage: stageChange}, func(t *busTx) (bool, error) { return t.w.nextTask > 0 && t.w.nextTask <= t.now, nil })
		if err != nil || !due {
			return err
		}
	}
}

// parked returns once that many receivers wait in the store.
func (c *clock) parked(s *Store, receivers int) {
	c.t.Helper()
	for {
		waiting, err := transactIn(background, busKey, s.DB.writer, op{stage: stageChange}, func(t *busTx) (n int, err error) {
			for _, claims := range t.w.parked {
				n += len(claims)
			}
			return n, nil
		})
		if err != nil {
			c.t.Fatal(err)
		}
		if waiting >= receivers {
			return
		}
	}
}

// waited is what a receiver that has waited got.
type waited[T any] struct {
	got T
	err error
}

// inBackground has a receiver wait, as one of that many in the store.
func inBackground[T any](c *clock, s *Store, receivers int, receive func() (T, error)) <-chan waited[T] {
	c.t.Helper()
	answers := make(chan waited[T], 1)
	go func() {
		got, err := receive()
		answers <- waited[T]{got, err}
	}()
	c.parked(s, receivers)
	return answers
}

// beside opens the database in what might be another process.
func (c *clock) beside(serve bool) *Store {
	c.t.Helper()
	where := c.where()
	where.Serve = serve
	s, err := Open(background, where)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { s.DB.Close() })
	c.stores = append(c.stores, s)
	return s
}
