package azurebus

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/trigger"
)

// The client gives back what comes between two receives. Of two messages that come then, it may
// hold the second while it gives back the first. Who goes on receiving gets the second first.
func TestASessionKeepsItsOrderWhereTheClientGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		service := &slowService{free: []int{1, 2, 3, 4, 5, 6}, session: make(chan struct{}, 1), replies: map[*amqp.Session]*amqp.Outgoing{}}
		server := amqp.NewServer(amqp.Options{Handler: service, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		client, err := azservicebus.NewClientFromConnectionString("Endpoint=sb://localhost;SharedAccessKeyName=name;SharedAccessKey=key", &azservicebus.ClientOptions{
			NewWebSocketConn: func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				near, far := net.Pipe()
				go func() { _ = server.ServeConn(context.Background(), far) }()
				return near, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		jobs := &listedJobs{until: 6, done: stop}
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		source := NewSource(SourceOptions{Name: "talks", From: "talks", Sessions: 1, Messages: 4, Logger: log,
			Maker: &trigger.Maker{Jobs: jobs, Logger: log, Tenant: "acme", Source: "talks", Task: "chat"}})
		_ = source.takeSessions(ctx, client) // until there are all jobs
		shut(ctx, client)
		if want := []string{"talks/1", "talks/2", "talks/3", "talks/4", "talks/5", "talks/6"}; !slices.Equal(jobs.made, want) {
			t.Errorf("jobs of %v, want %v", jobs.made, want)
		}
		synctest.Wait()
		if service.gaveBack != 1 {
			t.Errorf("the client gave back %d messages between two receives, want the fifth", service.gaveBack)
		}
	})
}

// listedJobs lists the keys of jobs, and calls done once there are so many.
type listedJobs struct {
	made  []string
	until int
	done  func()
}

func (j *listedJobs) SubmitRepeatable(_ context.Context, _ string, reqs []forebay.SubmitRequest, _ [][]byte) []forebay.SubmitResult {
	for _, r := range reqs {
		j.made = append(j.made, r.IdempotencyKey)
	}
	if len(j.made) >= j.until {
		j.done()
	}
	return make([]forebay.SubmitResult, len(reqs))
}

// slowService is a namespace with one queue, which has one session. To its first receiver some
// messages come late.
type slowService struct {
	session  chan struct{} // full while a receiver has the session
	free     []int         // numbers of messages that no receiver has, in order
	receives int           // how often the session was accepted
	gaveBack int           // messages that came back from the first receiver

	mu      sync.Mutex
	replies map[*amqp.Session]*amqp.Outgoing
}

func (*slowService) Opened(*amqp.Conn) error { return nil }
func (*slowService) Closed(*amqp.Conn)       {}
func (*slowService) AttachCoordinator(l *amqp.Incoming) {
	l.Refuse(&wire.Error{Condition: wire.ErrNotImplemented})
}
func (s *slowService) replyLink(l *amqp.Session) *amqp.Outgoing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replies[l]
}

// AttachIncoming takes requests to nodes, of which only $cbs gets some. Every token is good.
func (s *slowService) AttachIncoming(l *amqp.Incoming) {
	_ = l.Accept(amqp.IncomingOptions{Receive: func(d *amqp.Delivery) {
		d.Settle(&wire.Accepted{})
		go s.answer(d)
	}})
}

func (s *slowService) answer(d *amqp.Delivery) {
	request, err := wire.DecodeMessage(d.Payload)
	if err != nil {
		panic(err)
	}
	answer := wire.Message{Properties: &wire.Properties{CorrelationID: request.Properties.MessageID}, Value: wire.Map{}, HasValue: true,
		ApplicationProperties: wire.Map{{Key: "status-code", Value: int32(202)}, {Key: "status-description", Value: "Accepted"}}}
	payload, err := answer.Append(nil)
	if err != nil {
		panic(err)
	}
	link := s.replyLink(d.Link.Session())
	if _, _, err := link.WaitCredit(link.Context()); err == nil {
		_, _ = link.Send(link.Context(), amqp.Transfer{Tag: []byte{1}, Payload: payload, Settled: true})
	}
}

// AttachOutgoing gives the next session, or takes a link for answers.
func (s *slowService) AttachOutgoing(l *amqp.Outgoing) {
	asked := *l.Attach().Source
	if *asked.Address != "talks" {
		s.mu.Lock()
		s.replies[l.Session()] = l
		s.mu.Unlock()
		_ = l.Accept(amqp.OutgoingOptions{})
		return
	}
	select {
	case s.session <- struct{}{}:
		defer func() { <-s.session }()
	case <-l.Context().Done():
		return
	}
	asked.Filter = slices.Clone(asked.Filter)
	asked.Filter[0].Value = wire.Described{Descriptor: asked.Filter[0].Value.(wire.Described).Descriptor, Value: "one"}
	r := &slowReceiver{slowService: s, link: l, sent: map[uint32]int{}, settled: make(chan amqp.Settlement, 16)}
	if l.Accept(amqp.OutgoingOptions{Source: &asked, Properties: wire.Map{{Key: wire.Symbol("com.microsoft:locked-until-utc"), Value: ticksOf(time.Now().Add(time.Hour))}},
		Settled: func(list []amqp.Settlement) {
			for _, one := range list {
				r.settled <- one
			}
		}}) != nil {
		return
	}
	if s.receives++; s.receives == 1 {
		r.deliverLate()
	}
	r.deliver()
}

// ticksOf is a time as .NET counts it.
func ticksOf(t time.Time) int64 { return t.UnixNano()/100 + 621_355_968_000_000_000 }

// slowReceiver is who has the session.
type slowReceiver struct {
	*slowService
	link    *amqp.Outgoing
	sent    map[uint32]int // numbers of messages that it has, by delivery
	settled chan amqp.Settlement
}

// send sends the first of the free messages.
func (r *slowReceiver) send() {
	n := r.free[0]
	m := wire.Message{Header: &wire.Header{}, Properties: &wire.Properties{MessageID: fmt.Sprint(n)}, Data: [][]byte{[]byte("a question")}}
	payload, err := m.Append(nil)
	if err != nil {
		panic(err)
	}
	id, err := r.link.Send(r.link.Context(), amqp.Transfer{Tag: append(make([]byte, 15), byte(n)), Payload: payload})
	if err == nil {
		r.free, r.sent[id] = r.free[1:], n
	}
}

// settle does what the receiver says of a message, and tells it so.
func (r *slowReceiver) settle(one amqp.Settlement) {
	if _, released := one.State.(*wire.Released); released {
		r.free = append(r.free, r.sent[one.ID])
		slices.Sort(r.free)
	}
	delete(r.sent, one.ID)
	r.link.Settle(one.ID, one.State)
}

// deliverLate sends the fourth message alone, although more are asked for, until the client waits
// no longer. The fifth and the sixth come before the client receives again. It gives back the
// fifth, and its next step has begun before it is told that this is done.
func (r *slowReceiver) deliverLate() {
	for _, asked := range []int{1, 2} {
		_, _, _ = r.link.WaitCredit(r.link.Context())
		for range asked {
			r.send()
		}
		for range asked {
			r.settle(<-r.settled)
		}
	}
	_, _, _ = r.link.WaitCredit(r.link.Context())
	r.send()
	fourth := <-r.settled
	r.send()
	r.send()
	fifth := <-r.settled
	if _, released := fifth.State.(*wire.Released); released && r.sent[fifth.ID] == 5 {
		r.gaveBack++
	}
	r.settle(fourth)
	synctest.Wait() // nothing goes on any more: the next step waits for the client to have given back
	r.settle(fifth)
}

// deliver sends what is free, in order, while the receiver wants it. What the receiver has in the
// end is free again.
func (r *slowReceiver) deliver() {
	for {
		credit, _, changed := r.link.Credit()
		if credit > 0 && len(r.free) > 0 && r.link.Context().Err() == nil {
			r.send()
			continue
		}
		select {
		case one := <-r.settled:
			r.settle(one)
		case <-changed:
		case <-r.link.Context().Done():
			for _, n := range r.sent {
				r.free = append(r.free, n)
			}
			slices.Sort(r.free)
			return
		}
	}
}
