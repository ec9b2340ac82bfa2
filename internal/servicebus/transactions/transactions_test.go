package transactions

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/stores"
)

// bench has queues "q" of the tenants acme and other, a connection and its coordinator.
type bench struct {
	*testing.T
	*Service
	queues *messaging.Service
	*Connection
	coordinator *Coordinator
	leave       func() // ends the coordinator's link
}

// inBubble runs a test on SQLite by a clock of its own.
func inBubble(t *testing.T, test func(bench)) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := stores.Open(t.Context(), db.Options{Path: path, Serve: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.DB.Close()
		queues := messaging.New(messaging.Options{Store: s.Bus})
		for _, tenant := range []string{"acme", "other"} {
			if _, _, err := queues.Queues.Put(t.Context(), tenant, "q", forebay.MessageQueueSettings{LockSeconds: 300}); err != nil {
				t.Fatal(err)
			}
		}
		service := New(queues.Transactions, memory.New(8<<20))
		b := bench{T: t, Service: service, queues: queues, Connection: service.Connect()}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		b.coordinator, b.leave = b.Coordinator(ctx), leave
		test(b)
		b.coordinator.Close()
		if held := service.memory.Held(); held != 0 {
			t.Errorf("%d bytes are held at the end", held)
		}
	})
}

func (b bench) declare() []byte {
	b.Helper()
	id, err := b.coordinator.Declare()
	if err != nil {
		b.Fatal(err)
	}
	return id
}

func (b bench) send(id []byte, body string) error {
	return b.Add(b.Context(), "acme", id, sends("q", body), always, nil)
}

// always is of rights that do not end.
func always() error { return nil }

func sends(path, body string) messaging.Step {
	return messaging.Step{Kind: bus.StepSend, Path: path, Messages: []bus.MessageContent{{MessageID: body, Text: true, Body: []byte(body)}}}
}

func (b bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// want checks how many messages the queue of a tenant has.
func (b bench) want(tenant string, n int) {
	b.Helper()
	got, _, err := b.queues.Messages.Peek(b.Context(), tenant, "q", messaging.PeekFilter{})
	if err != nil || len(got) != n {
		b.Errorf("%s has %d messages, not %d (%v)", tenant, len(got), n, err)
	}
}

func TestCommitAndRollback(t *testing.T) {
	inBubble(t, func(b bench) {
		committed, dropped, empty := b.declare(), b.declare(), b.declare()
		b.must(b.send(committed, "one"))
		b.must(b.send(dropped, "two"))
		b.must(b.send(committed, "three"))
		b.want("acme", 0)
		if b.service.memory.Held() == 0 {
			b.Error("steps that wait hold no memory")
		}
		b.must(b.coordinator.Discharge(b.Context(), committed, false))
		b.must(b.coordinator.Discharge(b.Context(), dropped, true))
		b.must(b.coordinator.Discharge(b.Context(), empty, false))
		b.want("acme", 2)
		for _, id := range [][]byte{committed, dropped, empty, nil} {
			if err := b.send(id, "late"); !errors.Is(err, ErrUnknown) {
				b.Errorf("a step after the end: %v", err)
			}
			if err := b.coordinator.Discharge(b.Context(), id, false); !errors.Is(err, ErrUnknown) {
				b.Errorf("a second discharge: %v", err)
			}
		}
	})
}

// What is called after a commit is called once, before the discharge is answered, and not where a
// transaction comes to nothing.
func TestCommitIsTold(t *testing.T) {
	inBubble(t, func(b bench) {
		for _, ending := range []struct {
			name  string
			after func(id []byte)
			told  int
		}{
			{"commit", func(id []byte) { b.must(b.coordinator.Discharge(b.Context(), id, false)) }, 1},
			{"rollback", func(id []byte) { b.must(b.coordinator.Discharge(b.Context(), id, true)) }, 0},
			{"timeout", func(id []byte) {
				<-time.After(Lifetime + time.Second)
				if err := b.coordinator.Discharge(b.Context(), id, false); !errors.Is(err, ErrTimeout) {
					b.Error(err)
				}
			}, 0},
			{"broken", func(id []byte) {
				b.Break(id, errors.New("no such entity"))
				if err := b.coordinator.Discharge(b.Context(), id, false); err == nil {
					b.Error("a broken transaction is committed")
				}
			}, 0},
		} {
			id, told := b.declare(), 0
			b.must(b.Add(b.Context(), "acme", id, sends("q", ending.name), always, func() { told++ }))
			b.must(b.send(id, "beside "+ending.name))
			if ending.after(id); told != ending.told {
				b.Errorf("%s: told %d times", ending.name, told)
			}
		}
		b.want("acme", 2)
	})
}

// A transaction ends two minutes after its first step, however long ago it was declared.
func TestTimeout(t *testing.T) {
	inBubble(t, func(b bench) {
		late, inTime, unused := b.declare(), b.declare(), b.declare()
		<-time.After(time.Hour)
		b.must(b.send(late, "late"))
		<-time.After(time.Second)
		b.must(b.send(inTime, "in time"))
		<-time.After(Lifetime - time.Second)
		synctest.Wait()
		if err := b.send(late, "more"); !errors.Is(err, ErrTimeout) {
			b.Errorf("a step after two minutes: %v", err)
		}
		if err := b.coordinator.Discharge(b.Context(), late, false); !errors.Is(err, ErrTimeout) {
			b.Errorf("a discharge after two minutes: %v", err)
		}
		b.must(b.coordinator.Discharge(b.Context(), inTime, false))
		b.must(b.coordinator.Discharge(b.Context(), unused, false))
		b.want("acme", 1)
	})
}

// The end of the coordinator's link rolls back what it declared, and nothing else.
func TestEndOfTheLink(t *testing.T) {
	inBubble(t, func(b bench) {
		other := b.Coordinator(b.Context())
		defer other.Close()
		kept, err := other.Declare()
		b.must(err)
		id := b.declare()
		b.must(b.send(id, "dropped"))
		b.must(b.send(kept, "kept"))
		b.leave()
		synctest.Wait()
		if err := b.send(id, "more"); !errors.Is(err, ErrUnknown) {
			b.Errorf("a step after the end of the link: %v", err)
		}
		if _, err := b.coordinator.Declare(); err == nil {
			b.Error("a coordinator that has ended declares")
		}
		if err := b.coordinator.Discharge(b.Context(), kept, false); !errors.Is(err, ErrUnknown) {
			b.Errorf("discharged by another coordinator: %v", err)
		}
		b.must(other.Discharge(b.Context(), kept, false))
		b.want("acme", 1)
	})
}

// A step that is refused breaks its transaction.
func TestRefusedStep(t *testing.T) {
	inBubble(t, func(b bench) {
		many := messaging.Step{Kind: bus.StepSend, Path: "q", Messages: make([]bus.MessageContent, bus.MaxCommitSteps)}
		for name, step := range map[string]messaging.Step{
			"no such queue": sends("none", "x"), "another tenant's": sends("../other/q", "x"), "too many": many,
			"no token": {Kind: bus.StepComplete, Path: "q", Token: "x"},
		} {
			id := b.declare()
			b.must(b.send(id, "one"))
			if err := b.Add(b.Context(), "acme", id, step, always, nil); err == nil {
				b.Errorf("%s: was added", name)
			}
			if err := b.send(id, "two"); err == nil {
				b.Errorf("%s: the broken transaction takes a step", name)
			}
			var rolledBack *RolledBackError
			if err := b.coordinator.Discharge(b.Context(), id, false); !errors.As(err, &rolledBack) || forebay.CodeOf(err) == forebay.CodeInternal {
				b.Errorf("%s: the broken transaction ended with %v", name, err)
			}
		}
		b.want("acme", 0)
	})
}

// What only the commit finds out rolls back too: here two transactions complete one message.
func TestLockLost(t *testing.T) {
	inBubble(t, func(b bench) {
		text := "x"
		_, err := b.queues.Messages.Send(b.Context(), "acme", "q", []forebay.NewMessage{{Body: &text}})
		b.must(err)
		got, err := b.queues.Messages.Receive(b.Context(), "acme", "q", forebay.ReceiveRequest{})
		b.must(err)
		first, second := b.declare(), b.declare()
		for _, id := range [][]byte{first, second} {
			b.must(b.Add(b.Context(), "acme", id, messaging.Step{Kind: bus.StepComplete, Path: "q", Token: got[0].LockToken}, always, nil))
			b.must(b.send(id, "answer"))
		}
		b.must(b.coordinator.Discharge(b.Context(), second, false))
		var rolledBack *RolledBackError
		if err := b.coordinator.Discharge(b.Context(), first, false); !errors.As(err, &rolledBack) || !errors.Is(err, forebay.ErrLockLost) {
			b.Errorf("a second completion: %v", err)
		}
		b.want("acme", 1)
	})
}

// Messages that a client has let go of come back by a rollback, and by a commit that fails. One
// whose lock is lost holds up none of the others, and belongs to whoever has it now.
func TestMessagesThatAreLetGo(t *testing.T) {
	inBubble(t, func(b bench) {
		for _, fail := range []bool{true, false} {
			_, err := b.queues.Messages.Send(b.Context(), "acme", "q", make([]forebay.NewMessage, 3))
			b.must(err)
			receive := func(n int) []forebay.Message {
				got, err := b.queues.Messages.Receive(b.Context(), "acme", "q", forebay.ReceiveRequest{MaxMessages: 3})
				if b.must(err); len(got) != n {
					b.Fatalf("%d messages come, want %d", len(got), n)
				}
				return got
			}
			id, got := b.declare(), receive(3)
			for _, m := range got {
				b.must(b.Add(b.Context(), "acme", id, messaging.Step{Kind: bus.StepComplete, Path: "q", Token: m.LockToken}, always, nil))
				b.LetGo("acme", id, "q", m.LockToken)
				b.LetGo("other", id, "q", m.LockToken) // it is none of theirs
			}
			b.must(b.queues.Messages.Abandon(b.Context(), "acme", "q", got[1].LockToken, forebay.Settlement{}))
			again := receive(1)
			if err := b.coordinator.Discharge(b.Context(), id, fail); fail != (err == nil) {
				b.Errorf("discharged: %v", err)
			}
			for _, m := range append(receive(2), again...) {
				if m.DeliveryCount != 2 {
					b.Errorf("message %d was delivered %d times", m.SequenceNumber, m.DeliveryCount)
				}
				b.must(b.queues.Messages.Complete(b.Context(), "acme", "q", m.LockToken))
			}
		}
	})
}

// A right that ends before the discharge takes the whole transaction with it.
func TestEndedRights(t *testing.T) {
	inBubble(t, func(b bench) {
		id := b.declare()
		b.must(b.send(id, "one"))
		ended := errors.New("the right has ended")
		b.must(b.Add(b.Context(), "acme", id, sends("q", "two"), func() error { return ended }, nil))
		var rolledBack *RolledBackError
		if err := b.coordinator.Discharge(b.Context(), id, false); !errors.As(err, &rolledBack) || !errors.Is(err, ended) {
			b.Errorf("a transaction without rights: %v", err)
		}
		b.want("acme", 0)
	})
}

// A transaction belongs to one tenant and one connection. Others do not find it.
func TestOthers(t *testing.T) {
	inBubble(t, func(b bench) {
		id := b.declare()
		b.must(b.send(id, "one"))
		if err := b.Add(b.Context(), "other", id, sends("q", "x"), always, nil); !errors.Is(err, ErrUnknown) {
			b.Errorf("another tenant's step: %v", err)
		}
		stranger := b.Connect()
		if err := stranger.Add(b.Context(), "acme", id, sends("q", "x"), always, nil); !errors.Is(err, ErrUnknown) {
			b.Errorf("another connection's step: %v", err)
		}
		coordinator := stranger.Coordinator(b.Context())
		defer coordinator.Close()
		if err := coordinator.Discharge(b.Context(), id, true); !errors.Is(err, ErrUnknown) {
			b.Errorf("another connection's discharge: %v", err)
		}
		b.must(b.coordinator.Discharge(b.Context(), id, false))
		b.want("acme", 1)
		b.want("other", 0)
	})
}

// Messages that are scheduled have their numbers before the commit, and can be cancelled after it.
func TestSchedule(t *testing.T) {
	inBubble(t, func(b bench) {
		at := time.Now().Add(time.Hour)
		id := b.declare()
		seqs, err := b.Schedule(b.Context(), "acme", id, "q", []bus.MessageContent{{MessageID: "a", ScheduledAt: &at, Body: []byte("a")}, {MessageID: "b", ScheduledAt: &at, Body: []byte("b")}}, always)
		if err != nil || len(seqs) != 2 {
			b.Fatal(seqs, err)
		}
		if err := b.queues.Messages.CancelScheduled(b.Context(), "acme", "q", seqs[0]); forebay.CodeOf(err) != forebay.CodeNotFound {
			b.Errorf("a message is there before the commit: %v", err)
		}
		b.must(b.coordinator.Discharge(b.Context(), id, false))
		b.must(b.queues.Messages.CancelScheduled(b.Context(), "acme", "q", seqs[0]))
		b.want("acme", 1)
	})
}

// The transactions of a connection are bounded, and what they hold is memory of the tenant.
func TestBounds(t *testing.T) {
	inBubble(t, func(b bench) {
		for range MaxOpen {
			b.declare()
		}
		if _, err := b.coordinator.Declare(); !errors.Is(err, ErrTooMany) {
			b.Errorf("one more: %v", err)
		}
		b.coordinator.Close()
		full := b.Coordinator(b.Context())
		defer full.Close()
		large := make([]byte, 900<<10)
		var refused error
		for range 16 {
			id, err := full.Declare()
			b.must(err)
			step := sends("q", "x")
			step.Messages[0].Body = large
			if refused = b.Add(b.Context(), "acme", id, step, always, nil); refused != nil {
				break
			}
		}
		if !errors.Is(refused, memory.ErrFull) {
			b.Errorf("memory is not bounded: %v", refused)
		}
		id, err := full.Declare()
		b.must(err)
		if err := b.Add(b.Context(), "other", id, sends("q", "x"), always, nil); err != nil {
			b.Errorf("another tenant has no room: %v", err)
		}
	})
}

// Steps come from many links while the transaction ends. Each that was taken is committed.
func TestConcurrentSteps(t *testing.T) {
	inBubble(t, func(b bench) {
		taken := 0
		for range 20 {
			id := b.declare()
			var links sync.WaitGroup
			results := make([]error, 8)
			for i := range results {
				links.Go(func() { results[i] = b.send(id, "x") })
			}
			var ended error
			links.Go(func() { ended = b.coordinator.Discharge(b.Context(), id, false) })
			links.Wait()
			b.must(ended)
			for _, err := range results {
				switch {
				case err == nil:
					taken++
				case !errors.Is(err, ErrUnknown):
					b.Error(err)
				}
			}
		}
		left := 0
		for {
			got, err := b.queues.Messages.Receive(b.Context(), "acme", "q", forebay.ReceiveRequest{MaxMessages: 100, Mode: forebay.ReceiveAndDelete})
			b.must(err)
			if left += len(got); len(got) == 0 {
				break
			}
		}
		if left != taken {
			b.Errorf("%d messages were sent of %d steps that were taken", left, taken)
		}
	})
}
