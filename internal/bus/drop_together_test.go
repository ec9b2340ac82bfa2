package bus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// dropping drops entities, one after the other or in one transaction with what else is done.
type dropping struct {
	*testing.T
	*stores
}

// drop tells in dropped whether the entity was there.
func (d dropping) drop(q MessageQueue, dropped *bool) func() error {
	return func() (err error) {
		*dropped, err = d.Bus.DropMessageQueue(background, q)
		return err
	}
}

func (d dropping) send(q MessageQueue, messages ...MessageContent) func() error {
	return func() error { _, err := d.Bus.Send(background, q, messages); return err }
}

func (d dropping) together(calls ...func() error) error {
	return errors.Join(dbtest.InOneTransaction(d.T, d.DB, calls...)...)
}

// counted is how many rows there are.
func (d dropping) counted(from string) (n int64) {
	d.Helper()
	mustDo(d, d.DB.Read(background, func(c driver.Conn) error {
		_, err := c.Prep("SELECT count(*) FROM " + from).One(func(r driver.Row) { n = r.Int(0) })
		return err
	}))
	return n
}

// purged fails if anything is left once what was dropped is purged.
func (d dropping) purged() {
	d.Helper()
	mustDo(d, d.Bus.PurgeDropped(background))
	for _, table := range []string{"queues", "messages", "bodies", "sessions", "message_ids", "rules"} {
		if n := d.counted(table); n != 0 {
			d.Errorf("%d rows of %s are left", n, table)
		}
	}
}

func (d dropping) exists(q MessageQueue) bool {
	d.Helper()
	stored, found, err := d.Bus.MessageQueue(background, q.Name)
	mustDo(d, err)
	return found && stored.No == q.No
}

func whileDropping(t *testing.T, test func(d dropping)) {
	fixture.WithStores(t, func(t *testing.T, s *stores) { test(dropping{t, s}) })
}

// Of several who drop an entity in one transaction one has done it, alone or with its topic. The
// audit log has it once.
func TestWhatIsDroppedTogetherIsDroppedOnce(t *testing.T) {
	whileDropping(t, func(d dropping) {
		q, topic := named(d, d.stores, "t/q", MessageQueue{}), putTopic(d, d.stores, MessageQueue{Name: "t/topic"})
		a, b := subscribe(d, d.stores, topic, "a"), subscribe(d, d.stores, topic, "b")
		send(d, d.stores, topic, content("m", 1))
		before := d.counted("audit")
		all := []MessageQueue{q, q, a, topic, b, topic, a}
		got, calls := make([]bool, len(all)), make([]func() error, len(all))
		for i, q := range all {
			calls[i] = d.drop(q, &got[i])
		}
		mustDo(d, d.together(calls...))
		if want := []bool{true, false, true, true, false, false, false}; !slices.Equal(got, want) {
			d.Errorf("dropped %v, want %v", got, want)
		}
		if n := d.counted("audit") - before; n != 3 {
			d.Errorf("%d audit entries", n)
		}
		d.purged()
	})
}

// What is sent to a queue in the transaction that drops it goes with it. Nothing can be sent to it
// afterwards.
func TestWhatIsSentBesideADropGoesToo(t *testing.T) {
	whileDropping(t, func(d dropping) {
		for i, first := range []bool{true, false} {
			name := func(kind string) string { return fmt.Sprint("t/", kind, i) }
			plain, sessions := named(d, d.stores, name("plain"), MessageQueue{DuplicateWindow: time.Hour}), named(d, d.stores, name("sessions"), MessageQueue{RequiresSession: true})
			topic := putTopic(d, d.stores, MessageQueue{Name: name("topic")})
			sub := subscribe(d, d.stores, topic, "s")
			forwards := named(d, d.stores, name("forwards"), MessageQueue{ForwardTo: plain.Name})
			var dropped [3]bool
			drops := []func() error{d.drop(plain, &dropped[0]), d.drop(sessions, &dropped[1]), d.drop(topic, &dropped[2])}
			calls := []func() error{d.send(plain, MessageContent{MessageID: "1"}), d.send(sessions, MessageContent{MessageID: "2", SessionID: "x"}),
				d.send(topic, MessageContent{MessageID: "3"}), d.send(forwards, MessageContent{MessageID: "4"})}
			if first {
				calls = append(drops, calls...)
			} else {
				calls = append(calls, drops...)
			}
			mustDo(d, d.together(calls...))
			for _, q := range []MessageQueue{plain, sessions, topic, sub} {
				if d.exists(q) {
					d.Errorf("%s is still there", q.Name)
				}
			}
			for _, q := range []MessageQueue{plain, sessions, topic} {
				if err := d.send(q, MessageContent{MessageID: "5", SessionID: "x"})(); forebay.CodeOf(err) != forebay.CodeUnknownQueue {
					d.Errorf("%s: %v", q.Name, err)
				}
			}
			mustDo(d, d.send(forwards, MessageContent{MessageID: "6"})())
			if dead := peekAll(d, d.stores, forwards.Subqueue(true)); len(dead) != 1 || dead[0].MessageID != "6" || dead[0].DeadLetterReason != forebay.ReasonNoTarget {
				d.Errorf("forwarded to what was dropped: %+v", dead)
			}
			var gone bool
			mustDo(d, d.drop(forwards, &gone)())
		}
		d.purged()
	})
}

// An entity that is put in the transaction that drops one of its name is another one, if it comes
// later.
func TestWhatIsPutAfterADropIsNew(t *testing.T) {
	whileDropping(t, func(d dropping) {
		before, after := named(d, d.stores, "t/before", MessageQueue{}), named(d, d.stores, "t/after", MessageQueue{})
		topic := putTopic(d, d.stores, MessageQueue{Name: "t/topic"})
		sub := subscribe(d, d.stores, topic, "s")
		for _, q := range []MessageQueue{before, after, topic} {
			send(d, d.stores, q, MessageContent{MessageID: "m"})
		}
		put := func(q MessageQueue) func() error {
			return func() error { q.MaxDeliveries = 7; _, _, err := d.Bus.PutMessageQueue(background, q, 10); return err }
		}
		var dropped [3]bool
		mustDo(d, d.together(put(before), d.drop(before, &dropped[0]), d.drop(after, &dropped[1]), put(after), d.drop(topic, &dropped[2]), func() error {
			if _, _, err := d.Bus.PutSubscription(background, topic, sub, defaultRule, 10); forebay.CodeOf(err) != forebay.CodeNotFound {
				d.Errorf("a subscription of a topic that was dropped before: %v", err)
			}
			return nil
		}))
		if dropped != [3]bool{true, true, true} || d.exists(before) || d.exists(after) || d.exists(sub) {
			d.Errorf("dropped %v", dropped)
		}
		again, found, err := d.Bus.MessageQueue(background, after.Name)
		if err != nil || !found || again.MaxDeliveries != 7 || d.counts(d, again) != (entity.Counts{}) {
			d.Errorf("%+v, %t, %v", again, found, err)
		}
		mustDo(d, d.drop(again, &dropped[0])())
		d.purged()
	})
}

// A condition on what is dropped holds as the drop takes place, whatever changes the settings in
// the same transaction.
func TestADropKeepsItsCondition(t *testing.T) {
	whileDropping(t, func(d dropping) {
		changes := map[string]func(MessageQueue) error{
			"put": func(q MessageQueue) error {
				q.MaxDeliveries = 7
				_, _, err := d.Bus.PutMessageQueue(background, q, 20)
				return err
			},
			"status": func(q MessageQueue) error {
				_, err := d.Bus.Entities().Change(background, q, forebay.EntityChange{Status: forebay.EntitySendDisabled})
				if refused := forebay.CodeOf(err) == forebay.CodeUnknownQueue; refused != strings.HasSuffix(q.Name, "true") {
					return fmt.Errorf("a change of %s: %v", q.Name, err)
				}
				return nil
			},
		}
		for name, change := range changes {
			for _, first := range []bool{true, false} {
				q := named(d, d.stores, fmt.Sprint("t/", name, first), MessageQueue{})
				q, _, err := d.Bus.MessageQueue(background, q.Name)
				mustDo(d, err)
				dropped := false
				calls := []func() error{func() (err error) {
					dropped, err = d.Bus.DropMessageQueue(forebay.WithCondition(background, forebay.Condition{Match: []string{q.ETag()}}), q)
					if forebay.CodeOf(err) == forebay.CodePreconditionFailed {
						err = nil
					}
					return err
				}, func() error { return change(q) }}
				if !first {
					slices.Reverse(calls)
				}
				mustDo(d, d.together(calls...))
				if dropped != first || d.exists(q) == first {
					d.Errorf("%s, dropped first %t: dropped %t, there %t", name, first, dropped, d.exists(q))
				}
			}
		}
	})
}

// A subscription that is dropped gets copies of what is published in that transaction, which go
// with it, and of nothing later. The others get all.
func TestDroppedSubscriptionsGetNoMoreCopies(t *testing.T) {
	whileDropping(t, func(d dropping) {
		topic := putTopic(d, d.stores, MessageQueue{Name: "t/topic"})
		gone, kept := subscribe(d, d.stores, topic, "gone"), subscribe(d, d.stores, topic, "kept")
		send(d, d.stores, topic, content("1", 1))
		var dropped bool
		mustDo(d, d.together(d.send(topic, content("2", 1)), d.drop(gone, &dropped), d.send(topic, content("3", 1))))
		send(d, d.stores, topic, content("4", 1))
		if got := subjects(d, d.stores, kept.Subqueue(false)); got != "1 2 3 4" {
			d.Errorf("%q", got)
		}
		mustDo(d, d.Bus.PurgeDropped(background))
		if n := d.counted("bodies"); !dropped || n != 4 {
			d.Errorf("dropped: %t; %d copies", dropped, n)
		}
	})
}

// A step of a purge is bounded, however many queues were dropped and whatever they have.
func TestPurgesAreBounded(t *testing.T) {
	for kind, database := range dbtest.Databases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, err := fixture.Open(background, database(t)) // which purges nothing by itself
			mustDo(t, err)
			t.Cleanup(func() { mustDo(t, s.DB.Close()) })
			d := dropping{t, s}
			dropped := make([]bool, 3)
			var drops []func() error
			for i, q := range []MessageQueue{{}, {DuplicateWindow: time.Hour}, {RequiresSession: true}} {
				q = named(t, s, fmt.Sprint("t/q", i), q)
				sendMany(t, s, q, 2*purgeBatch+1, func(m *MessageContent) { m.SessionID = m.MessageID })
				drops = append(drops, d.drop(q, &dropped[i]))
			}
			mustDo(t, d.together(drops...))
			tables := []string{"messages", "bodies", "sessions", "message_ids"}
			rows := func() (n [4]int64) {
				for i, table := range tables {
					n[i] = d.counted(table)
				}
				return n
			}
			step := func() error {
				_, err := db.TransactIn(background, Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) { return 0, t.Entities.purgeOnce() })
				return err
			}
			steps := 0
			for before := rows(); d.counted("queues") > 0; steps++ {
				mustDo(t, d.together(step, step)) // those who wait at the same time share it
				after := rows()
				for i := range tables {
					if n := before[i] - after[i]; n > purgeBatch {
						t.Errorf("a step has removed %d rows of %s", n, tables[i])
					}
				}
				if before = after; steps > 40 {
					t.Fatal("it does not end")
				}
			}
			d.purged()
		})
	}
}

// What was sent to a queue, or received from a subscription, in the transaction that finds them
// idle keeps them. What is forwarded there after they were dropped is not lost.
func testIdleIsJudgedByWhatTheTransactionDid(t *testing.T, s *stores, c *clock) {
	d := idleQueues{t, c, s}
	idle := func(q *MessageQueue) { q.Idle = testLock }
	used, unused, target := d.put("t/used", idle), d.put("t/unused", idle), d.put("t/target", idle)
	topic := d.put("t/topic", func(q *MessageQueue) { q.IsTopic, q.Idle = true, testLock })
	sub := subscribe(t, s, topic, "s", func(q *MessageQueue) { q.Lock = time.Hour })
	other := d.put("t/other", func(q *MessageQueue) { q.IsTopic, q.Idle = true, testLock })
	subscribe(t, s, other, "s")
	forwards := d.put("t/forwards", func(q *MessageQueue) { q.Idle, q.Lock = 0, testLock })
	sendTo(t, s, forwards, MessageContent{MessageID: "m"})
	d.receive(forwards, 1)
	d.put("t/forwards", func(q *MessageQueue) { q.Idle, q.Lock, q.ForwardTo = 0, testLock, target.Name })
	sendTo(t, s, topic, MessageContent{MessageID: "m"})
	d.receive(sub, 1)
	c.quiet()
	if silent, ok := c.engine.(interface{ Advance(time.Duration) }); ok { // nothing is done before the send is
		silent.Advance(testLock * 61 / 60)
		sendTo(t, s, used, MessageContent{MessageID: "m"})
		d.want(used, true, "sent to")
		c.quiet()
	} else {
		c.pass(testLock * 61 / 60)
	}
	d.want(unused, false, "idle")
	d.want(target, false, "idle")
	d.want(other, false, "idle")
	d.want(topic, true, "a subscription has a lock")
	d.want(sub, true, "locked")
	if dead := peekAll(t, s, forwards.Subqueue(true)); len(dead) != 1 || dead[0].DeadLetterReason != forebay.ReasonNoTarget {
		t.Errorf("forwarded to a queue that was idle: %+v", dead)
	}
}
