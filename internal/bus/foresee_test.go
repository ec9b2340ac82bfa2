package bus

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/dead"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// onClockServer opens stores on PostgreSQL whose clock a test moves.
func onClockServer(t *testing.T) (*stores, *dbtest.ClockSchema[*stores]) {
	e := fixture.ClockSchema(dbtest.NewClockServer(t))
	s := e.Open(t)
	t.Cleanup(func() { s.DB.Close() })
	return s, e
}

// A queue that gets a due message is not deleted for being idle in the same transaction.
func TestDueMessageKeepsItsQueue(t *testing.T) {
	s, e := onClockServer(t)
	put := func(q MessageQueue) MessageQueue {
		q.Tenant, q.Lock, q.MaxDeliveries = 1, time.Minute, 3
		stored, _, err := s.Bus.PutMessageQueue(t.Context(), q, 100)
		mustDo(t, err)
		return stored
	}
	q := put(MessageQueue{Name: "t/q", Idle: 5 * time.Minute})
	target := put(MessageQueue{Name: "t/target", Idle: 5 * time.Minute})
	from := put(MessageQueue{Name: "t/from", ForwardTo: target.Name})
	at := time.UnixMilli(e.Now()).Add(4 * time.Minute)
	sendTo(t, s, q, MessageContent{MessageID: "m", ScheduledAt: &at})
	sendTo(t, s, from, MessageContent{MessageID: "m", ScheduledAt: &at})
	e.Pass(s, 10*time.Minute) // nobody served meanwhile
	for _, q := range []MessageQueue{q, target} {
		_, found, err := s.Bus.MessageQueue(t.Context(), q.Name)
		mustDo(t, err)
		if !found {
			t.Errorf("%s is gone, and its message with it", q.Name)
			continue
		}
		got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20})
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %d messages, %v", q.Name, len(got), err)
		}
	}
}

// putPlain makes a queue.
func putPlain(t *testing.T, s *stores, q MessageQueue) MessageQueue {
	t.Helper()
	q.Tenant, q.MaxDeliveries = 1, max(1, q.MaxDeliveries)
	if q.Lock == 0 {
		q.Lock = time.Minute
	}
	stored, _, err := s.Bus.PutMessageQueue(t.Context(), q, 1000)
	mustDo(t, err)
	return stored
}

// A message in the backlog whose due time was only out of date is not overtaken.
func TestBacklogKeepsItsOrder(t *testing.T) {
	s, e := onClockServer(t)
	target := putPlain(t, s, MessageQueue{Name: "t/target"})
	q := putPlain(t, s, MessageQueue{Name: "t/q"})
	sendTo(t, s, q, MessageContent{MessageID: "m1"}, MessageContent{MessageID: "m2"})
	got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20})
	mustDo(t, err)
	mustDo(t, s.Bus.ReleaseMessage(t.Context(), q.Subqueue(false), got[0].Lock))
	e.Advance(2 * time.Minute)
	q.ForwardTo = target.Name
	putPlain(t, s, q)
	for range 3 {
		e.Pass(s, 0)
	}
	got, err = s.Bus.Receive(t.Context(), ReceiveRequest{Queue: target, Max: 5, MaxBytes: 1 << 20})
	mustDo(t, err)
	if len(got) != 2 || got[0].MessageID != "m1" {
		t.Error("m1 was overtaken")
	}
}

// deadLettersOf fills the dead-letter subqueue of a queue, and returns the numbers.
func deadLettersOf(t *testing.T, s *stores, q MessageQueue, n, size int) (seqs []int64) {
	t.Helper()
	for i := range n {
		sendTo(t, s, q, MessageContent{MessageID: fmt.Sprint("m", i), Body: make([]byte, size)})
		got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 30})
		mustDo(t, err)
		mustDo(t, s.Bus.DeadLetter(t.Context(), q.Subqueue(false), got[0].Lock, DeadLettering{Reason: "r"}, nil))
		seqs = append(seqs, got[0].Seq)
	}
	return seqs
}

// A message whose redrive was refused is there for others in the transaction.
func TestRefusedRedriveTakesNothing(t *testing.T) {
	s, _ := onClockServer(t)
	q := putPlain(t, s, MessageQueue{Name: "t/q"})
	seqs := deadLettersOf(t, s, q, 1, 10)
	var step dead.Step
	errs := dbtest.InOneTransaction(t, s.DB, func() error {
		_, err := s.Bus.DeadLetters().Redrive(t.Context(), q, dead.Selection{Numbers: seqs, Limit: 10}, dead.Pace{}, func(*MessageContent) error { return forebay.Invalid("edit", "too large") })
		return err
	}, func() (err error) {
		step, err = s.Bus.DeadLetters().Purge(t.Context(), q, dead.Selection{Numbers: seqs, Limit: 10})
		return err
	})
	if errs[0] == nil || errs[1] != nil {
		t.Fatal(errs)
	}
	if step.Done != 1 {
		t.Error("the purge found nothing, and the message is still there")
	}
}

// Many redrives in one transaction read no more ahead than a transaction takes.
func TestRedrivesReadLittleAhead(t *testing.T) {
	t.Parallel()
	s, _ := onClockServer(t)
	const queues, each, size = 4, 5, 4 << 20
	var calls []func() error
	for i := range queues {
		q := putPlain(t, s, MessageQueue{Name: fmt.Sprint("t/q", i)})
		deadLettersOf(t, s, q, each, size)
		calls = append(calls, func() error {
			_, err := s.Bus.DeadLetters().Redrive(t.Context(), q, dead.Selection{Limit: 200}, dead.Pace{}, nil)
			return err
		})
	}
	left := 0
	calls = append(calls, func() error {
		_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageSubmit, Hints: 1}, func(tx *Tx) (int, error) {
			for _, a := range tx.forwarding.ahead {
				left += len(a.Body)
			}
			return 0, nil
		})
		return err
	})
	for _, err := range dbtest.InOneTransaction(t, s.DB, calls...) {
		mustDo(t, err)
	}
	if left > rules.FullCopyBytes {
		t.Errorf("%d MiB were read ahead and not used", left>>20)
	}
}

// Another operation fails while a message id is looked for.
func TestFailureWhileAMessageIDIsLookedFor(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	s, _ := onClockServer(t)
	q := putPlain(t, s, MessageQueue{Name: "t/q", DuplicateWindow: time.Hour})
	tries := 0
	errs := dbtest.InOneTransaction(t, s.DB, func() error {
		_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (int, error) { return 0, nil })
		return err
	}, func() error {
		_, err := s.Bus.Send(t.Context(), q, []MessageContent{{MessageID: "m"}})
		return err
	}, func() error {
		_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange, Local: true, Interleaves: true}, func(tx *Tx) (int, error) {
			if tries++; tries > 1 {
				return 0, nil
			}
			for range 2 {
				_, err := tx.any("SELECT 1 FROM queues WHERE no = ?", q.No)
				mustDo(t, err)
			}
			return 0, errors.New("fails")
		})
		return err
	})
	for _, err := range errs {
		mustDo(t, err)
	}
	if strings.Contains(log.String(), "panic") || strings.Contains(log.String(), "nil pointer") {
		t.Errorf("%.1200s", log.String())
	}
}

// Numbers that were fetched for one that waits come into the pool in their order.
func TestNumbersAheadStayInOrder(t *testing.T) {
	s, _ := onClockServer(t)
	_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (int, error) {
		err := tx.Interleave(2, func(i int) error {
			if i == 0 {
				return tx.foresee(0, func(f *foresight) { f.numbers = 3 })
			}
			return tx.Alone(func() error { return tx.foresee(0, func(f *foresight) { f.numbers = 3 }) })
		})
		if !slices.IsSorted(tx.Queue.Seqs) {
			t.Errorf("%v", tx.Queue.Seqs)
		}
		return 0, err
	})
	mustDo(t, err)
}

// Messages that come to a session directly, by a queue that forwards and by a topic meet the end
// of its lock in one transaction.
func TestWaysToASessionMeet(t *testing.T) {
	s, _ := onClockServer(t)
	for round := range 4 {
		name := fmt.Sprint("t/", round)
		target := putPlain(t, s, MessageQueue{Name: name + "target", RequiresSession: true, DuplicateWindow: time.Hour, MaxDeliveries: 3})
		from := putPlain(t, s, MessageQueue{Name: name + "from", ForwardTo: target.Name})
		topic := putTopic(t, s, MessageQueue{Name: name + "topic"})
		subscribe(t, s, topic, "s", func(q *MessageQueue) { q.ForwardTo = target.Name })
		l, err := s.Bus.Sessions().Accept(t.Context(), target, "x")
		mustDo(t, err)
		send := func(q MessageQueue, id string) func() error {
			return func() error {
				_, err := s.Bus.Send(t.Context(), q, []MessageContent{{MessageID: id, SessionID: "x"}})
				return err
			}
		}
		calls := []func() error{send(from, "a"), send(topic, "a"), send(target, "a"), send(topic, "b"), send(from, "b"), send(target, "c")}
		end := func() error { return s.Bus.Sessions().Close(t.Context(), target, l.SessionLock) }
		if round%2 == 0 {
			calls = append(calls, end)
		} else {
			calls = append([]func() error{end}, calls...)
		}
		if round >= 2 {
			calls = append(calls, func() error {
				_, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: 1, Name: name + "other", Lock: time.Minute, MaxDeliveries: 1}, 1000)
				return err
			}, send(from, "a"), send(target, "b"), send(topic, "d"))
		}
		for _, err := range dbtest.InOneTransaction(t, s.DB, calls...) {
			mustDo(t, err)
		}
		again, err := s.Bus.Sessions().Accept(t.Context(), target, "x")
		mustDo(t, err)
		got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: target, Session: &again.SessionLock, Max: 20, MaxBytes: 1 << 20})
		mustDo(t, err)
		ids := map[string]int{}
		for _, m := range got {
			ids[m.MessageID]++
		}
		if want := 3 + round/2; len(got) != want || len(ids) != want {
			t.Error(round, ids)
		}
	}
}
