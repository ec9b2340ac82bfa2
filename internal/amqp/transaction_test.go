package amqp_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

func TestTransactionsReachTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deliveries, requests := make(chan *amqp.Delivery, 10), make(chan *amqp.Delivery, 10)
		accept := func(to chan *amqp.Delivery) func(*amqp.Incoming) {
			return func(l *amqp.Incoming) {
				_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) { to <- d }})
			}
		}
		p, ended := piped(t, amqp.Options{Handler: &handler{incoming: accept(deliveries), coordinator: accept(requests)}})
		p.open(nil)
		p.begin(0)
		p.send(0, &wire.Attach{Name: "c", Handle: 0, Source: source("me"), Coordinator: &wire.Coordinator{Capabilities: []wire.Symbol{"amqp:local-transactions"}}, InitialDeliveryCount: number(uint32(0))})
		if a := expect[*wire.Attach](p); a.Target != nil || a.Coordinator == nil || len(a.Coordinator.Capabilities) != 1 {
			t.Errorf("%+v", a)
		}
		expect[*wire.Flow](p)
		p.attachSender(0, 1, "q")

		p.send(0, transfer(0, 0), []byte("declare"))
		(<-requests).Settle(&wire.Declared{TxnID: []byte("txn")})
		if s, ok := expect[*wire.Disposition](p).State.(*wire.Declared); !ok || string(s.TxnID) != "txn" {
			t.Errorf("%+v", s)
		}
		for id := range uint32(4) {
			x := transfer(1, 1+id)
			x.State = &wire.TransactionalState{TxnID: []byte("txn")}
			p.send(0, x, []byte("m"))
		}
		var got []*amqp.Delivery
		for range 4 {
			got = append(got, <-deliveries)
		}
		for i, d := range got { // after what came behind it was read into the same buffer
			if s, ok := d.State.(*wire.TransactionalState); !ok || string(s.TxnID) != "txn" || string(d.Payload) != "m" {
				t.Errorf("%d: %+v, %q", i, d.State, d.Payload)
			}
		}
		got[0].Settle(&wire.TransactionalState{TxnID: []byte("txn"), Outcome: &wire.Accepted{}})
		synctest.Wait()
		got[1].Settle(&wire.TransactionalState{TxnID: []byte("txn"), Outcome: &wire.Accepted{}})
		got[2].Settle(&wire.TransactionalState{TxnID: []byte("txn"), Outcome: &wire.Accepted{}})
		got[3].Settle(&wire.TransactionalState{TxnID: []byte("other"), Outcome: &wire.Accepted{}})
		for _, want := range [][2]uint32{{1, 1}, {2, 3}, {4, 4}} {
			if d := expect[*wire.Disposition](p); d.First != want[0] || *d.Last != want[1] {
				t.Errorf("%d to %d instead of %d", d.First, *d.Last, want)
			}
		}
		p.Close()
		<-ended
	})
}

func TestACoordinatorThatIsRefused(t *testing.T) {
	s := serve(t, amqp.Options{Handler: accepting()})
	p := connect(t, s)
	p.begin(0)
	p.send(0, &wire.Attach{Name: "c", Handle: 0, Source: source("me"), Coordinator: &wire.Coordinator{}, InitialDeliveryCount: number(uint32(0))})
	if a := expect[*wire.Attach](p); a.Target != nil || a.Coordinator != nil || a.Source == nil {
		t.Errorf("%+v", a)
	}
	isError(t, expect[*wire.Detach](p).Error, wire.ErrNotImplemented)
}

func TestAttachWithoutSourceAndTarget(t *testing.T) {
	s := serve(t, amqp.Options{Handler: accepting()})
	p := connect(t, s)
	p.begin(0)
	for handle, role := range []wire.Role{wire.RoleSender, wire.RoleReceiver} {
		p.send(0, &wire.Attach{Name: "bare", Handle: uint32(handle), Role: role, InitialDeliveryCount: number(uint32(0))})
		if a := expectAmong[*wire.Attach](p); a.Target == nil || a.Source == nil {
			t.Errorf("%+v", a)
		}
	}
}

func TestWhatCannotBeSent(t *testing.T) {
	links := make(chan *amqp.Outgoing, 1)
	s := serve(t, amqp.Options{Handler: sending(links, nil)})
	p := connect(t, s)
	p.begin(0)
	attach := receiverOf(0, "q")
	attach.MaxMessageSize = number(uint64(10))
	p.send(0, attach, credit(0, 0, 10))
	expect[*wire.Attach](p)
	l := receive(t, "link", links)
	if _, _, err := l.WaitCredit(limited(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Send(limited(t), amqp.Transfer{Tag: []byte("t"), Payload: make([]byte, 11)}); !errors.Is(err, amqp.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	for _, tag := range [][]byte{nil, make([]byte, 33)} {
		if _, err := l.Send(limited(t), amqp.Transfer{Tag: tag}); err == nil {
			t.Errorf("a tag of %d bytes was sent", len(tag))
		}
	}
	if _, err := l.Send(limited(t), amqp.Transfer{Tag: []byte("t"), Payload: make([]byte, 10)}); err != nil {
		t.Error(err)
	}
	if n, _, _ := l.Credit(); n != 9 {
		t.Errorf("credit %d", n)
	}
}

func TestShutdownCutsOffWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, ended := pipedServer(context.Background(), t, amqp.Options{Handler: accepting(), CloseTimeout: time.Hour, WriteTimeout: time.Hour})
		p.open(nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-ended
		if since := time.Since(began); since != time.Minute {
			t.Errorf("after %s", since)
		}
	})
}

// A delivery whose outcome was told can be given another one, until it is settled. A peer that
// settles it in the same transaction says nothing new.
func TestToldOutcomesAreNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, links := make(chan []amqp.Settlement, 10), make(chan *amqp.Outgoing, 1)
		p, _ := piped(t, amqp.Options{Handler: &handler{outgoing: func(l *amqp.Outgoing) {
			_ = l.Accept(amqp.OutgoingOptions{Settled: func(list []amqp.Settlement) { said <- list }})
			links <- l
		}}})
		p.open(nil)
		p.begin(0)
		p.attachReceiver(0, 0, "q")
		p.send(0, credit(0, 0, 100))
		l := <-links
		if _, _, err := l.WaitCredit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := sendOn(t, l, "m"); err != nil {
				t.Fatal(err)
			}
			expect[*wire.Transfer](p)
		}
		for _, txn := range []string{"one", "other"} { // the second after a rollback
			state := &wire.TransactionalState{TxnID: []byte(txn), Outcome: &wire.Accepted{}}
			p.send(0, &wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: number(uint32(1)), State: state})
			if list := <-said; len(list) != 2 || list[1].ID != 1 || list[1].Settled {
				t.Fatalf("%s: %+v", txn, list)
			}
			l.Tell(0, state)
			l.Tell(1, state)
			synctest.Wait()
			if d := expect[*wire.Disposition](p); d.Settled || d.First != 0 || *d.Last != 1 {
				t.Errorf("%s: %+v", txn, d)
			}
		}
		p.send(0, &wire.Disposition{Role: wire.RoleReceiver, First: 0, Settled: true, State: &wire.TransactionalState{TxnID: []byte("other")}})
		synctest.Wait()
		if left := l.Unsettled(); len(said) > 0 || len(left) != 1 || left[0].ID != 1 {
			t.Errorf("%d reports, and unsettled are %+v", len(said), left)
		}
		l.Settle(1, &wire.Accepted{})
		if d := expect[*wire.Disposition](p); !d.Settled || d.First != 1 {
			t.Errorf("%+v", d)
		}
	})
}
