package amqp_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// closing has a peer receive three deliveries, say an outcome of the first two, and detach. The
// handler has settled nothing.
func closing(t *testing.T, p *peer, links <-chan *amqp.Outgoing, told <-chan []amqp.Settlement) *amqp.Outgoing {
	t.Helper()
	p.begin(0)
	p.attachReceiver(0, 7, "q")
	p.send(0, credit(7, 0, 10))
	l := <-links
	for i := range uint32(3) {
		if _, _, err := l.WaitCredit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if id, err := sendOn(t, l, "m"); err != nil || id != i {
			t.Fatal(id, err)
		}
		expect[*wire.Transfer](p)
	}
	last := uint32(1)
	p.send(0, &wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: &last, State: &wire.Accepted{}})
	<-told
	p.send(0, &wire.Detach{Handle: 7, Closed: true})
	<-l.Context().Done()
	return l
}

// inBubble runs a test with a peer in a bubble, and ends its connection.
func inBubble(t *testing.T, test func(t *testing.T, p *peer, links <-chan *amqp.Outgoing, told <-chan []amqp.Settlement)) {
	synctest.Test(t, func(t *testing.T) {
		links, told := make(chan *amqp.Outgoing, 2), make(chan []amqp.Settlement, 10)
		p, ended := piped(t, amqp.Options{Handler: sending(links, func(_ *amqp.Outgoing, list []amqp.Settlement) { told <- list })})
		p.open(nil)
		test(t, p, links, told)
		p.send(0, &wire.Close{})
		expect[*wire.Close](p)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The answer to a Detach comes after those to what the peer has said of deliveries before.
func TestADetachWaitsForSettlements(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer, links <-chan *amqp.Outgoing, told <-chan []amqp.Settlement) {
		l := closing(t, p, links, told)
		l.Settle(2, &wire.Accepted{}) // of which the peer has said nothing
		l.Settle(1, &wire.Accepted{})
		l.Settle(0, &wire.Rejected{})
		for id := range uint32(2) {
			if d := expect[*wire.Disposition](p); d.First != id || *d.Last != id {
				t.Errorf("%+v", d)
			}
		}
		if d := expect[*wire.Detach](p); d.Handle != 7 || !d.Closed || d.Error != nil {
			t.Errorf("%+v", d)
		}
		if left := l.Unsettled(); len(left) != 1 || left[0].ID != 2 {
			t.Errorf("%+v", left)
		}
		p.attachReceiver(0, 7, "q") // the handle is free
	})
}

// It waits no longer than a bound for a handler that does not settle.
func TestADetachDoesNotWaitForEver(t *testing.T) {
	inBubble(t, func(t *testing.T, p *peer, links <-chan *amqp.Outgoing, told <-chan []amqp.Settlement) {
		l := closing(t, p, links, told)
		begun := time.Now()
		l.Settle(1, &wire.Accepted{})
		expect[*wire.Disposition](p)
		expect[*wire.Detach](p)
		if waited := time.Since(begun); waited != 10*time.Second {
			t.Errorf("it has waited %s", waited)
		}
		l.Settle(0, &wire.Accepted{})
		if left := l.Unsettled(); len(left) != 2 {
			t.Errorf("%+v", left)
		}
		p.attachReceiver(0, 7, "q")
	})
}

// A peer that does not wait for the answer gets it before that to what it does next.
func TestAPeerThatDoesNotWaitForItsDetach(t *testing.T) {
	for name, next := range map[string][]any{
		"attaches":     {receiverOf(7, "q")},
		"detaches":     {&wire.Detach{Handle: 7, Closed: true}},
		"ends":         {&wire.End{}},
		"says another": {&wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: number(uint32(1)), Settled: true}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *peer, links <-chan *amqp.Outgoing, told <-chan []amqp.Settlement) {
				l := closing(t, p, links, told)
				p.send(0, next...)
				switch name {
				case "ends":
					expect[*wire.End](p)
				default:
					expect[*wire.Detach](p)
				}
				if name == "attaches" {
					expect[*wire.Attach](p)
				}
				synctest.Wait()
				for id := range uint32(3) {
					l.Settle(id, &wire.Accepted{}) // nobody listens any more
				}
				ids := []uint32{}
				for _, s := range l.Unsettled() {
					ids = append(ids, s.ID)
				}
				if slices.Contains(ids, 0) == (name == "says another") {
					t.Errorf("unsettled: %v", ids)
				}
			})
		})
	}
}

// A peer that detaches without closing may attach the link again. An answer that closes it is an
// error to such a client.
func TestADetachIsAnsweredInKind(t *testing.T) {
	s := serve(t, amqp.Options{Handler: nodeHandler(map[string]*node{"q": newNode()})})
	p := connect(t, s)
	p.begin(0)
	for _, closed := range []bool{false, true} {
		p.attachSender(0, 0, "q")
		p.attachReceiver(0, 1, "q")
		for handle := range uint32(2) {
			p.send(0, &wire.Detach{Handle: handle, Closed: closed})
			if d := expect[*wire.Detach](p); d.Handle != handle || d.Closed != closed || d.Error != nil {
				t.Errorf("closed %v is answered with %+v", closed, d)
			}
		}
	}
}

// Microsoft's go-amqp may write a flow after the Detach of its link. The other links of the
// session go on.
func TestCreditAfterADetachIsIgnored(t *testing.T) {
	s := serve(t, amqp.Options{Handler: nodeHandler(map[string]*node{"q": newNode()})})
	p := connect(t, s)
	p.begin(0)
	p.attachSender(0, 0, "q")
	p.attachReceiver(0, 1, "q")
	p.send(0, &wire.Detach{Handle: 1, Closed: true}, credit(1, 0, 5), transfer(0, 0), []byte("m"))
	expect[*wire.Detach](p)
	if d := expect[*wire.Disposition](p); d.First != 0 {
		t.Errorf("%+v", d)
	}
}
