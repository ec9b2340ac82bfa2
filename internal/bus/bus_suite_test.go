package bus

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
)

// busSuite is what queues of messages, sessions and topics must do on every database, in what no
// client of a server can do or see. Each test gets an empty store and a clock of its own.
var busSuite = map[string]func(*testing.T, *stores, *clock){
	"Receivers that give up leave nothing": testReceiversThatGiveUpLeaveNothing,
	"Receive is bounded in bytes":          testReceiveIsBoundedInBytes,
	"Deferred beside held ones":            testDeferredBesideHeldOnes,
	"Delete beyond locked":                 testDeleteBeyondLocked,
	"Drop while receiving":                 testDropWhileReceiving,
	"Drop message queue":                   testDropMessageQueue,
	"Message queue limit":                  testMessageQueueLimit,
	"Queue settings that stay":             testQueueSettingsThatStay,

	"Receivers remove only so much":       testReceiversRemoveOnlySoMuch,
	"Sessions without messages":           testSessionsWithoutMessagesArePassedOver,
	"Many held messages of a session":     testManyHeldMessagesOfASession,
	"Many held messages expire":           testManyHeldMessagesExpire,
	"Empty sessions are forgotten":        testEmptySessionsAreForgotten,
	"More ids are forgotten than fit":     testMoreIDsAreForgottenThanFit,
	"More queues seem idle than fit":      testMoreQueuesSeemIdleThanFit,
	"Idle topics with many subscriptions": testIdleTopicsWithManySubscriptions,
	"A queue that was kept is idle later": testKeptQueueIsIdleLater,
	"Idle by what a transaction did":      testIdleIsJudgedByWhatTheTransactionDid,
	"What was missed is done later":       testWhatWasMissedIsDoneLater,
	"What is done is not due again":       testWhatIsDoneIsNotDueAgain,
	"Redrive at a pace":                   testRedriveAtAPace,
	"Forwarding of what is given back":    testForwardingOfWhatIsGivenBack,

	"Complete many":            testCompleteMany,
	"A queue that is gone":     testAQueueThatIsGone,
	"Sizes are counted":        testSizesAreCounted,
	"Put only new or existing": testPutOnlyNewOrExisting,
	"Changes keep the rest":    testChangesKeepTheRest,

	"Fan-out limit":                       testFanOutLimit,
	"Subscriptions and rules are bounded": testSubscriptionsAndRulesAreBounded,
	"Publish":                             testPublish,
	"A postponed message keeps its topic": testPostponedMessageKeepsItsTopic,
}

// brokerSuite is what they must do whoever uses them: by the store's own calls, or as the client
// of a server. The tests send, receive and settle by stores.Broker.
var brokerSuite = map[string]func(*testing.T, *stores, *clock){
	"Dropped queue":                       testDroppedQueue,
	"Receivers are woken":                 testReceiversAreWoken,
	"Concurrent receivers":                testConcurrentReceivers,
	"Expiry waits for the lock":           testExpiryWaitsForTheLock,
	"Activation wakes":                    testActivationWakes,
	"Many are activated":                  testManyAreActivated,
	"Message ids are forgotten":           testMessageIDsAreForgotten,
	"Idle queues":                         testIdleQueues,
	"More messages are due than fit":      testMoreMessagesAreDueThanFit,
	"Several queues are due":              testSeveralQueuesAreDue,
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
	"Nobody sends":                        testNobodySends,
	"Nobody receives":                     testNobodyReceives,
	"Nobody receives sessions":            testNobodyReceivesSessions,
	"Waiting while disabled":              testWaitingWhileDisabled,
	"Disabled by another process":         testDisabledByAnotherProcess,
	"Forwarding to a disabled entity":     testForwardingToADisabledEntity,
	"Forwarding from a disabled queue":    testForwardingFromADisabledQueue,
	"Copies into what is disabled":        testCopiesIntoWhatIsDisabled,
	"Use is recorded":                     testUseIsRecorded,
	"Largest message":                     testLargestMessage,
	"Topic fan-out":                       testTopicFanOut,
	"Filter errors":                       testFilterErrors,
	"Topic settings":                      testTopicSettings,
	"Forwarding through topics":           testForwardingThroughTopics,
	"Forwarding to Forebay's topics":      testNothingIsForwardedToOurTopics,
	"Drop topic":                          testDropTopic,
	"Idle subscription":                   testIdleSubscription,
	"Rules of another process":            testRulesOfAnotherProcess,
	"Unreadable rule":                     testUnreadableRule,
}

// busSuiteOfRows are those of the suite that write many rows.
var busSuiteOfRows = []string{
	"Fan-out limit", "Forwarding of a backlog", "Forwarding through topics", "Forwarding to Forebay's topics",
	"Many are activated", "Subscriptions and rules are bounded", "Topic fan-out",
}

func TestBus(t *testing.T) {
	t.Parallel()
	all := maps.Clone(busSuite)
	maps.Copy(all, brokerSuite)
	suite := slices.Sorted(maps.Keys(all))
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		for _, name := range suite {
			t.Run(name, func(t *testing.T) {
				if slices.Contains(busSuiteOfRows, name) {
					raced.Skip(t, raced.MuchData)
				}
				e := fixture.Bubble(filepath.Join(t.TempDir(), "f.db"))
				synctest.Test(t, func(t *testing.T) { runWithClock(t, e, e.Open(t), all[name]) })
			})
		}
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		c := fixture.ClockSchema(dbtest.NewClockServer(t))
		if err := c.Open(t).DB.Close(); err != nil {
			t.Fatal(err)
		}
		for _, name := range suite {
			t.Run(name, func(t *testing.T) {
				if slices.Contains(busSuiteOfRows, name) {
					raced.Skip(t, raced.MuchData)
				}
				c.Run(t, emptyBus)
				runWithClock(t, c, c.Reopen(t), all[name])
			})
		}
	})
}

// emptyBus removes what a test of the suite has left: another database would take longer than most
// tests.
const emptyBus = `
DELETE FROM messages; DELETE FROM bodies; DELETE FROM sessions; DELETE FROM message_ids; DELETE FROM rules; DELETE FROM queues`

func runWithClock(t *testing.T, e engine, s *stores, test func(*testing.T, *stores, *clock)) {
	t.Cleanup(func() { s.DB.Close() })
	test(t, s, &clock{t: t, engine: e, stores: []*stores{s}})
}

// clock is the time of a database. It passes only when the test says so.
type clock struct {
	engine
	t      *testing.T
	stores []*stores // those that are open
}

func (c *clock) time() time.Time { return time.UnixMilli(c.Now()) }

// pass returns once the store has done what there is to do at the later time.
func (c *clock) pass(d time.Duration) {
	c.t.Helper()
	c.Pass(c.stores[0], d)
	c.quiet()
}

// quiet returns once the stores have nothing to do at this time.
func (c *clock) quiet() {
	c.t.Helper()
	for _, s := range c.stores {
		c.Settle(s, nil)
		if err := rest(s); err != nil {
			c.t.Fatal(err)
		}
	}
}

// rest returns once a store finds nothing to do at this time.
func rest(s *stores) error {
	for {
		due, err := db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (bool, error) { return t.W.nextTask > 0 && t.W.nextTask <= t.Now, nil })
		if err != nil || !due {
			return err
		}
	}
}

// awaitReceivers returns once that many receivers wait in the store.
func (c *clock) awaitReceivers(s *stores, receivers int) {
	c.t.Helper()
	for c.receivers(s) < receivers {
		s.breathe()
	}
}

// receivers is how many wait in the store.
func (c *clock) receivers(s *stores) int {
	c.t.Helper()
	waiting, err := s.receivers()
	if err != nil {
		c.t.Fatal(err)
	}
	return waiting
}

// waited is the answer to a receiver that has waited.
type waited[T any] struct {
	got T
	err error
}

// inBackground lets a receiver wait, as one of that many in the store.
func inBackground[T any](c *clock, s *stores, receivers int, receive func() (T, error)) <-chan waited[T] {
	c.t.Helper()
	answers := make(chan waited[T], 1)
	go func() {
		got, err := receive()
		answers <- waited[T]{got, err}
	}()
	for c.receivers(s) < receivers {
		if len(answers) > 0 {
			a := <-answers
			c.t.Fatalf("a receiver that is to wait got %+v (%v)", a.got, a.err)
		}
		s.breathe()
	}
	return answers
}

// beside opens the database as another process would.
func (c *clock) beside(serve bool) *stores {
	c.t.Helper()
	where := c.Options()
	where.Serve = serve
	s, err := openStores(background, where)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { s.DB.Close() })
	c.stores = append(c.stores, s)
	return s
}
