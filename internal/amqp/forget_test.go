package amqp_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

func TestDeliveriesThatNobodySettlesAreForgotten(t *testing.T) {
	links := make(chan *amqp.Outgoing, 1)
	told := make(chan []amqp.Settlement, 10)
	s := serve(t, amqp.Options{MaxUnsettled: 16, Handler: sending(links, func(_ *amqp.Outgoing, list []amqp.Settlement) { told <- list })})
	p := connect(t, s)
	p.begin(0)
	p.attachReceiver(0, 0, "q")
	p.send(0, credit(0, 0, 100))
	l := receive(t, "link", links)
	if _, _, err := l.WaitCredit(limited(t)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := sendOn(t, l, "m"); err != nil {
			t.Fatal(err)
		}
		expect[*wire.Transfer](p)
	}
	left := l.Unsettled()
	if len(left) > 16 || len(left) < 12 || left[len(left)-1].ID != 99 {
		t.Errorf("%d are unsettled, up to %+v", len(left), left[len(left)-1])
	}
	p.send(0, &wire.Disposition{Role: wire.RoleReceiver, First: 3, State: &wire.Accepted{}})
	d := expect[*wire.Disposition](p)
	if r, ok := d.State.(*wire.Rejected); !ok || d.First != 3 || d.Role != wire.RoleSender {
		t.Errorf("%+v", d)
	} else {
		isError(t, r.Error, wire.ErrNotFound)
	}
	p.send(0, &wire.Disposition{Role: wire.RoleReceiver, First: 99, State: &wire.Accepted{}})
	if list := receive(t, "settlements", told); len(list) != 1 || list[0].ID != 99 {
		t.Errorf("%+v", list)
	}
}

// forgetful is a peer with a link on a connection that may have 16 unsettled deliveries. Nobody
// settles what the peer says of them before the test does.
func forgetful(t *testing.T) (p *peer, l *amqp.Outgoing, told chan []amqp.Settlement) {
	links := make(chan *amqp.Outgoing, 1)
	told = make(chan []amqp.Settlement, 100)
	s := serve(t, amqp.Options{MaxUnsettled: 16, Handler: sending(links, func(_ *amqp.Outgoing, list []amqp.Settlement) { told <- list })})
	p = connect(t, s)
	p.begin(0)
	p.attachReceiver(0, 0, "q")
	p.send(0, credit(0, 0, 1000))
	l = receive(t, "link", links)
	if _, _, err := l.WaitCredit(limited(t)); err != nil {
		t.Fatal(err)
	}
	return p, l, told
}

func deliver(p *peer, l *amqp.Outgoing, n int) {
	p.t.Helper()
	for range n {
		if _, err := sendOn(p.t, l, "m"); err != nil {
			p.t.Fatal(err)
		}
		expect[*wire.Transfer](p)
	}
}

func (p *peer) accept(first, last uint32) {
	p.t.Helper()
	p.send(0, &wire.Disposition{Role: wire.RoleReceiver, First: first, Last: &last, State: &wire.Accepted{}})
}

// The handler is about to answer what the peer has said, so such deliveries are not forgotten.
func TestDeliveriesThatAreBeingSettledAreNotForgotten(t *testing.T) {
	p, l, told := forgetful(t)
	deliver(p, l, 10)
	p.accept(2, 3)
	if list := receive(t, "settlements", told); len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	deliver(p, l, 40)
	l.Settle(2, &wire.Accepted{})
	l.Settle(3, &wire.Accepted{})
	for id := uint32(2); id <= 3; {
		d := expect[*wire.Disposition](p)
		if _, ok := d.State.(*wire.Accepted); !ok || d.First != id {
			t.Fatalf("%+v instead of the outcome of %d", d, id)
		}
		id = *d.Last + 1
	}
}

// A peer that says again what was settled long ago is not told that it was forgotten.
func TestOnlyForgottenDeliveriesAreTooOld(t *testing.T) {
	p, l, told := forgetful(t)
	deliver(p, l, 4)
	p.accept(1, 1)
	receive(t, "settlement", told)
	l.Settle(1, &wire.Accepted{})
	if d := expect[*wire.Disposition](p); d.First != 1 {
		t.Fatalf("%+v", d)
	}
	deliver(p, l, 40)
	p.accept(0, 4)
	var tooOld []uint32
	for len(tooOld) < 4 {
		d := expect[*wire.Disposition](p)
		r, ok := d.State.(*wire.Rejected)
		if !ok {
			t.Fatalf("%+v", d)
		}
		isError(t, r.Error, wire.ErrNotFound)
		tooOld = append(tooOld, d.First)
	}
	if !slices.Equal(tooOld, []uint32{0, 2, 3, 4}) {
		t.Errorf("%d are too old", tooOld)
	}
}

// What is said of a forgotten delivery is answered once. Small frames that say it again and again
// would fill the memory of the server otherwise.
func TestForgottenDeliveriesAreAnsweredOnce(t *testing.T) {
	p, l, told := forgetful(t)
	deliver(p, l, 20)
	for range 3 {
		p.accept(0, 0)
	}
	p.accept(19, 19)
	receive(t, "settlement", told)
	l.Settle(19, &wire.Accepted{})
	for _, want := range []uint32{0, 19} {
		if d := expect[*wire.Disposition](p); d.First != want {
			t.Fatalf("%+v instead of the answer about %d", d, want)
		}
	}
}

// If the peer has said an outcome of all, a further one is sent when the handler has answered.
func TestASendWaitsWhileAllDeliveriesAreBeingSettled(t *testing.T) {
	p, l, told := forgetful(t)
	deliver(p, l, 16)
	p.accept(0, 15)
	if list := receive(t, "settlements", told); len(list) != 16 {
		t.Fatalf("%+v", list)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { _, err := l.Send(ctx, amqp.Transfer{Tag: []byte("t")}); done <- err }()
	p.send(0, &wire.Flow{NextIncomingID: number(uint32(16)), IncomingWindow: 1000, Echo: true})
	expect[*wire.Flow](p) // and no transfer
	cancel()
	if err := receive(t, "end of Send", done); !errors.Is(err, context.Canceled) {
		t.Fatalf("a seventeenth delivery: %v", err)
	}
	go func() { _, err := sendOn(t, l, "m"); done <- err }()
	l.Settle(7, &wire.Accepted{})
	for range 2 {
		switch f, err := p.read(); x := f.p.(type) {
		case *wire.Disposition:
			if x.First != 7 {
				t.Errorf("%+v", x)
			}
		case *wire.Transfer:
		default:
			t.Fatalf("%T, %v", x, err)
		}
	}
	if err := receive(t, "end of Send", done); err != nil {
		t.Error(err)
	}
}
