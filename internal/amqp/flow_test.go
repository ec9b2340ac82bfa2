package amqp_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// sending is a handler that hands each link on which the peer receives to the test.
func sending(links chan *amqp.Outgoing, settled func(*amqp.Outgoing, []amqp.Settlement)) *handler {
	return &handler{outgoing: func(l *amqp.Outgoing) {
		o := amqp.OutgoingOptions{}
		if settled != nil {
			o.Settled = func(list []amqp.Settlement) { settled(l, list) }
		}
		if l.Accept(o) == nil {
			links <- l
		}
	}}
}

func sendOn(t testing.TB, l *amqp.Outgoing, payload string) (id uint32, err error) {
	t.Helper()
	return l.Send(limited(t), amqp.Transfer{Tag: []byte(payload), Payload: []byte(payload)})
}

func TestOutcomesThatComeTogetherAreToldAsRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deliveries := make(chan *amqp.Delivery, 200)
		p, ended := piped(t, amqp.Options{Handler: &handler{incoming: func(l *amqp.Incoming) {
			_ = l.Accept(amqp.IncomingOptions{Credit: 1000, Receive: func(d *amqp.Delivery) { deliveries <- d }})
		}}})
		p.open(nil)
		p.begin(0)
		p.attachSender(0, 0, "q")
		p.attachSender(0, 1, "q")
		for id := range uint32(100) {
			p.send(0, transfer(id%2, id), []byte("m"))
		}
		(<-deliveries).Settle(&wire.Accepted{})
		synctest.Wait() // the writer writes that one, and the peer does not read yet
		var rest []*amqp.Delivery
		for len(rest) < 99 {
			rest = append(rest, <-deliveries)
		}
		slices.Reverse(rest)
		for _, d := range rest {
			switch {
			case d.ID == 50:
				d.Settle(&wire.Rejected{Error: &wire.Error{Condition: "test:bad"}})
			case d.ID > 80:
				d.Settle(&wire.Released{})
				d.Settle(&wire.Accepted{}) // too late
			default:
				d.Settle(&wire.Accepted{})
			}
		}
		for _, want := range [][2]uint32{{0, 0}, {1, 49}, {50, 50}, {51, 80}, {81, 99}} {
			d := expect[*wire.Disposition](p)
			if d.First != want[0] || *d.Last != want[1] || !d.Settled || d.Role != wire.RoleReceiver {
				t.Errorf("%+v to %d instead of %d", d, *d.Last, want)
			}
			_, released := d.State.(*wire.Released)
			if released != (want[0] == 81) {
				t.Errorf("%d to %d: %T", d.First, *d.Last, d.State)
			}
		}
		p.Close()
		<-ended
	})
}

func TestTheWindowOfTheSessionIsKept(t *testing.T) {
	links := make(chan *amqp.Outgoing, 1)
	s := serve(t, amqp.Options{Handler: sending(links, nil)})
	p := connect(t, s)
	p.send(0, &wire.Begin{IncomingWindow: 2, OutgoingWindow: 10})
	expect[*wire.Begin](p)
	p.attachReceiver(0, 0, "q")
	p.send(0, &wire.Flow{NextIncomingID: number(uint32(0)), IncomingWindow: 2, Handle: number(uint32(0)), LinkCredit: number(uint32(100)), DeliveryCount: number(uint32(0))})
	l := receive(t, "link", links)
	if _, _, err := l.WaitCredit(limited(t)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for range 7 {
			if _, err := sendOn(t, l, "m"); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	next := uint32(0)
	for next < 7 {
		for range min(2, 7-next) {
			if x := expect[*wire.Transfer](p); *x.DeliveryID != next {
				t.Fatalf("%d instead of %d", *x.DeliveryID, next)
			}
			next++
		}
		// No third one is on its way: the answer to the echo comes first.
		p.send(0, &wire.Flow{NextIncomingID: &next, Echo: true})
		if f := expect[*wire.Flow](p); f.NextOutgoingID != next || f.Handle != nil {
			t.Fatalf("%+v after %d", f, next)
		}
		p.send(0, &wire.Flow{NextIncomingID: &next, IncomingWindow: 2})
	}
	if err := receive(t, "end", done); err != nil {
		t.Error(err)
	}
}

func TestCreditCountsFromTheDeliveryCount(t *testing.T) {
	links := make(chan *amqp.Outgoing, 1)
	s := serve(t, amqp.Options{Handler: sending(links, nil)})
	p := connect(t, s)
	p.begin(0)
	p.attachReceiver(0, 5, "q")
	l := receive(t, "link", links)
	if _, err := sendOn(t, l, "m"); !errors.Is(err, amqp.ErrNoCredit) {
		t.Errorf("without credit: %v", err)
	}
	has := func(want uint32) {
		t.Helper()
		if got, _, _ := l.Credit(); got != want {
			t.Errorf("credit %d instead of %d", got, want)
		}
	}
	echoed := func(flow *wire.Flow) *wire.Flow {
		t.Helper()
		flow.Echo = true
		p.send(0, flow)
		return expect[*wire.Flow](p)
	}
	echoed(credit(5, 0, 3))
	has(3)
	for range 2 {
		if _, err := sendOn(t, l, "m"); err != nil {
			t.Fatal(err)
		}
		expect[*wire.Transfer](p)
	}
	has(1)
	if f := echoed(credit(5, 0, 3)); *f.DeliveryCount != 2 || *f.LinkCredit != 1 || f.Echo || f.Drain { // the peer has not seen them
		t.Errorf("%+v", f)
	}
	has(1)
	echoed(credit(5, 2, 3))
	has(3)
	echoed(credit(5, 0, 1)) // less than was used
	has(0)

	p.send(0, credit(5, 2, 4))
	drain := credit(5, 2, 4)
	drain.Drain = true
	p.send(0, drain)
	for asked := false; !asked; {
		n, isAsked, changed := l.Credit()
		if asked = isAsked; asked && n != 4 {
			t.Errorf("credit %d", n)
		}
		if !asked {
			<-changed
		}
	}
	if _, err := sendOn(t, l, "last"); err != nil {
		t.Fatal(err)
	}
	l.Drained()
	expect[*wire.Transfer](p)
	if f := expect[*wire.Flow](p); *f.DeliveryCount != 6 || *f.LinkCredit != 0 || !f.Drain || f.Echo || f.NextIncomingID == nil {
		t.Errorf("%+v", f)
	}
	drain = credit(5, 6, 0)
	drain.Drain = true
	p.send(0, drain) // nothing to drain is answered at once
	if f := expect[*wire.Flow](p); *f.DeliveryCount != 6 || *f.LinkCredit != 0 || !f.Drain {
		t.Errorf("%+v", f)
	}
}

func TestWhatThePeerSaysOfDeliveries(t *testing.T) {
	links := make(chan *amqp.Outgoing, 2)
	told := make(chan []amqp.Settlement, 10)
	s := serve(t, amqp.Options{Handler: sending(links, func(_ *amqp.Outgoing, list []amqp.Settlement) { told <- list })})
	p := connect(t, s)
	p.begin(0)
	p.attachReceiver(0, 0, "q")
	p.attachReceiver(0, 1, "q")
	p.send(0, credit(0, 0, 100), credit(1, 0, 100))
	a, b := receive(t, "link", links), receive(t, "link", links)
	for i := range uint32(8) {
		l := []*amqp.Outgoing{a, b}[i%2]
		if _, _, err := l.WaitCredit(limited(t)); err != nil {
			t.Fatal(err)
		}
		if id, err := sendOn(t, l, string('a'+rune(i))); err != nil || id != i {
			t.Fatalf("delivery %d: %d, %v", i, id, err)
		}
		if x := expect[*wire.Transfer](p); x.MessageFormat == nil || *x.DeliveryID != i {
			t.Fatalf("%+v", x)
		}
	}
	say := func(first, last uint32, settled bool, state wire.DeliveryState) {
		p.send(0, &wire.Disposition{Role: wire.RoleReceiver, First: first, Last: &last, Settled: settled, State: state})
	}
	ids := func(list []amqp.Settlement) (ids []uint32) {
		for _, s := range list {
			ids = append(ids, s.ID)
		}
		return ids
	}
	say(0, 3, false, &wire.Accepted{}) // of both links
	one, two := receive(t, "settlements", told), receive(t, "settlements", told)
	if !slices.Equal(ids(one), []uint32{0, 2}) || !slices.Equal(ids(two), []uint32{1, 3}) || one[1].Settled || string(one[1].Tag) != "c" {
		t.Errorf("%+v, %+v", one, two)
	}
	say(2, 2, false, &wire.Released{}) // said already, and not answered yet
	say(0, 1<<31-1, false, &wire.Received{})
	say(100, 200, true, nil)
	a.Settle(0, &wire.Accepted{})
	a.Settle(1, &wire.Accepted{}) // the other link's
	a.Settle(2, &wire.Rejected{Error: &wire.Error{Condition: "test:lost"}})
	for first := uint32(0); first < 3; {
		d := expect[*wire.Disposition](p)
		if d.First != first || *d.Last != first || d.Role != wire.RoleSender || !d.Settled {
			t.Errorf("%+v", d)
		}
		first += 2
	}
	say(4, 1<<31-1, true, nil) // the rest, by itself
	one, two = receive(t, "settlements", told), receive(t, "settlements", told)
	if !slices.Equal(ids(one), []uint32{4, 6}) || !slices.Equal(ids(two), []uint32{5, 7}) || !one[0].Settled || one[0].State != nil {
		t.Errorf("%+v, %+v", one, two)
	}
	if left := b.Unsettled(); !slices.Equal(ids(left), []uint32{1, 3}) {
		t.Errorf("unsettled: %+v", left)
	}
	p.send(0, &wire.Detach{Handle: 1, Closed: true, Error: &wire.Error{Condition: "test:gone"}})
	<-b.Context().Done()
	if err := context.Cause(b.Context()); !errors.Is(err, amqp.ErrDetached) || condition(err) != "test:gone" {
		t.Error(err)
	}
	if left := b.Unsettled(); !slices.Equal(ids(left), []uint32{1, 3}) || string(left[0].Tag) != "b" {
		t.Errorf("unsettled after the end: %+v", left)
	}
	if _, err := sendOn(t, b, "x"); !errors.Is(err, amqp.ErrDetached) {
		t.Error(err)
	}
	for _, id := range []uint32{1, 3} {
		b.Settle(id, &wire.Accepted{})
		if d := expect[*wire.Disposition](p); d.First != id || *d.Last != id || !d.Settled {
			t.Errorf("%+v", d)
		}
	}
	expect[*wire.Detach](p)
	b.Settle(1, &wire.Accepted{})
	if len(told) > 0 {
		t.Errorf("told twice: %+v", <-told)
	}
}

func TestLinksOfASession(t *testing.T) {
	links := make(chan *amqp.Outgoing, 10)
	h := sending(links, nil)
	h.incoming = func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) { d.Settle(nil) }})
	}
	s := serve(t, amqp.Options{Handler: h})
	p := connect(t, s)
	for channel := range uint16(2) {
		p.begin(channel)
		p.attachSender(channel, 3, "$cbs")
		p.attachReceiver(channel, 1, "$cbs")
		p.attachReceiver(channel, 2, "$cbs")
	}
	ss := receive(t, "link", links).Session()
	if in, out := ss.Incoming(), ss.Outgoing(); len(in) != 1 || len(out) != 2 || out[0].Session() != ss || in[0].Name() != "s" {
		t.Errorf("%d incoming, %d outgoing", len(in), len(out))
	}
	p.send(0, &wire.End{}) // without a detach
	expect[*wire.End](p)
	<-ss.Context().Done()
	if len(ss.Incoming())+len(ss.Outgoing()) > 0 {
		t.Error("links are left")
	}
	p.begin(0) // the channel is free again
	p.attachReceiver(0, 1, "q")
}

func TestASendIsEndedByADetach(t *testing.T) {
	links := make(chan *amqp.Outgoing, 1)
	s := serve(t, amqp.Options{Handler: sending(links, nil)})
	p := connect(t, s)
	p.send(0, &wire.Begin{})
	expect[*wire.Begin](p)
	p.attachReceiver(0, 0, "q")
	flow := credit(0, 0, 1)
	flow.IncomingWindow = 0
	p.send(0, flow)
	l := receive(t, "link", links)
	if _, _, err := l.WaitCredit(limited(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Send(ctx, amqp.Transfer{Tag: []byte("t")}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	done := make(chan error, 1)
	go func() { _, err := sendOn(t, l, "m"); done <- err }()
	p.send(0, &wire.Detach{Handle: 0, Closed: true})
	if err := receive(t, "end of Send", done); !errors.Is(err, amqp.ErrDetached) {
		t.Error(err)
	}
	if left := l.Unsettled(); len(left) > 0 {
		t.Errorf("what was not sent is unsettled: %+v", left)
	}
}

func TestAPipelinedDetachOfALinkThatIsNotDecided(t *testing.T) {
	decide := make(chan struct{})
	accepted := make(chan error, 1)
	s := serve(t, amqp.Options{Handler: &handler{incoming: func(l *amqp.Incoming) {
		<-decide
		accepted <- l.Accept(amqp.IncomingOptions{Receive: func(*amqp.Delivery) {}})
	}}})
	p := connect(t, s)
	p.begin(0)
	p.send(0, senderOf(0, "q"), &wire.Detach{Handle: 0, Closed: true})
	if a := expect[*wire.Attach](p); a.Target != nil {
		t.Errorf("%+v", a)
	}
	if d := expect[*wire.Detach](p); !d.Closed || d.Error != nil {
		t.Errorf("%+v", d)
	}
	close(decide)
	if err := receive(t, "answer", accepted); !errors.Is(err, amqp.ErrDetached) {
		t.Error(err)
	}
}

func TestTheEndOfTheContextClosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		p, ended := pipedIn(ctx, t, amqp.Options{Handler: accepting()})
		p.open(nil)
		p.begin(0)
		cancel()
		isError(t, expect[*wire.Close](p).Error, wire.ErrConnectionForced)
		p.send(0, &wire.Close{})
		if err := <-ended; condition(err) != wire.ErrConnectionForced {
			t.Error(err)
		}
	})
}

func TestPartsOfDeliveriesAreJoinedByLink(t *testing.T) {
	deliveries := make(chan *amqp.Delivery, 10)
	s := serve(t, amqp.Options{Handler: &handler{incoming: func(l *amqp.Incoming) {
		_ = l.Accept(amqp.IncomingOptions{Credit: 4, Receive: func(d *amqp.Delivery) { deliveries <- d }})
	}}})
	p := connect(t, s)
	p.begin(0)
	p.attachSender(0, 0, "a")
	p.attachSender(0, 1, "b")
	part := func(handle, id uint32) *wire.Transfer {
		x := transfer(handle, id)
		x.More = true
		return x
	}
	rest := func(handle uint32, more bool) *wire.Transfer { return &wire.Transfer{Handle: handle, More: more} }
	aborted := rest(1, false)
	aborted.Aborted = true
	settled := rest(0, false)
	settled.Settled = true
	p.send(0,
		part(0, 0), []byte("one "), part(1, 1), []byte("lost "), rest(0, true), []byte("and "), rest(1, true), []byte("with all"),
		aborted, transfer(1, 2), []byte("two"), settled, []byte("one"))
	d := receive(t, "delivery", deliveries)
	if d.ID != 2 || string(d.Payload) != "two" || d.Link.Name() != "s" || d.Settled {
		t.Errorf("%d: %q", d.ID, d.Payload)
	}
	d.Settle(&wire.Accepted{})
	if d := expect[*wire.Disposition](p); d.First != 2 || *d.Last != 2 {
		t.Errorf("%+v", d)
	}
	d = receive(t, "delivery", deliveries)
	if d.ID != 0 || string(d.Payload) != "one and one" || !d.Settled {
		t.Errorf("%d: %q", d.ID, d.Payload)
	}
	d.Settle(&wire.Accepted{}) // of which the peer wants to hear nothing
	// Both links have used two credits or one; the echo says what the server counts.
	for handle, want := range []uint32{1, 2} {
		h := uint32(handle)
		p.send(0, &wire.Flow{NextIncomingID: number(uint32(0)), IncomingWindow: 10, Handle: &h, Echo: true})
		if f := expectFlow(p, h); *f.DeliveryCount != want || *f.LinkCredit+*f.DeliveryCount < 4 || *f.NextIncomingID != 7 {
			t.Errorf("link %d: %+v, count %d, credit %d, next %d", h, f, *f.DeliveryCount, *f.LinkCredit, *f.NextIncomingID)
		}
	}
}

// expectFlow reads the last of the flows of a link that are on their way.
func expectFlow(p *peer, handle uint32) *wire.Flow {
	p.t.Helper()
	for {
		if f := expect[*wire.Flow](p); f.Handle != nil && *f.Handle == handle {
			return f
		}
	}
}
