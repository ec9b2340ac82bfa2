package bus

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/queue"
)

// BenchmarkFarAway measures what is done with plain messages on a PostgreSQL that is 0, 1 and 5 ms
// away.
func BenchmarkFarAway(b *testing.B) {
	fixture.FarAway(b, func(t testing.TB, s *stores) map[string]func(n int) []func() error {
		ctx, serial := context.Background(), 0
		made := func(sessions bool) MessageQueue {
			serial++
			q, _, err := s.Bus.PutMessageQueue(ctx, MessageQueue{Name: fmt.Sprintf("t/q%d", serial), Tenant: tenantOf(t, s, "acme"),
				Lock: time.Hour, MaxDeliveries: 3, RequiresSession: sessions}, 10_000)
			mustDo(t, err)
			return q
		}
		content := func(i int) MessageContent {
			return MessageContent{MessageID: fmt.Sprint("m", i), Body: []byte("1"), Text: true}
		}
		received := func(n int) (q MessageQueue, got []Message) {
			for q = made(false); len(got) < n; {
				many := min(n-len(got), 500)
				list := make([]MessageContent, many)
				for i := range list {
					list[i] = content(i)
				}
				sendTo(t, s, q, list...)
				some, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: q, Max: many, MaxBytes: 1 << 30})
				mustDo(t, err)
				got = append(got, some...)
			}
			return q, got
		}
		settled := func(do func(MessageQueue, queue.Lock) error) func(n int) []func() error {
			return func(n int) (calls []func() error) {
				q, got := received(n)
				for _, m := range got {
					calls = append(calls, func() error { return do(q, m.Lock) })
				}
				return calls
			}
		}
		// held are sessions under lock, each with some messages.
		held := func(sessions, each int) (q MessageQueue, locks []SessionLock) {
			q = made(true)
			var list []MessageContent
			for i := range sessions * each {
				m := content(i)
				m.SessionID = fmt.Sprint("s", i%sessions)
				if list = append(list, m); len(list) == 500 || i == sessions*each-1 {
					sendTo(t, s, q, list...)
					list = nil
				}
			}
			for i := range sessions {
				one, err := s.Bus.Sessions().Accept(ctx, q, fmt.Sprint("s", i))
				mustDo(t, err)
				locks = append(locks, one.SessionLock)
			}
			return q, locks
		}
		receiveIn := func(q MessageQueue, l SessionLock, many int) ([]Message, error) {
			got, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: q, Session: &l, Max: many, MaxBytes: 1 << 20})
			if err == nil && len(got) == 0 {
				err = fmt.Errorf("no message")
			}
			return got, err
		}
		ofSessions := func(each int, do func(MessageQueue, SessionLock) error) func(n int) []func() error {
			return func(n int) (calls []func() error) {
				q, locks := held(n, each)
				for _, l := range locks {
					calls = append(calls, func() error { return do(q, l) })
				}
				return calls
			}
		}
		inSessions := func(do func(MessageQueue, queue.Lock) error) func(n int) []func() error {
			return func(n int) (calls []func() error) {
				const each = 8
				q, locks := held((n+each-1)/each, each)
				for _, l := range locks {
					got, err := receiveIn(q, l, each)
					mustDo(t, err)
					for _, m := range got {
						calls = append(calls, func() error { return do(q, m.Lock) })
					}
				}
				return calls[:n]
			}
		}
		return map[string]func(n int) []func() error{
			"send": func(n int) (calls []func() error) {
				q := made(false)
				for i := range n {
					calls = append(calls, func() error { _, err := s.Bus.Send(ctx, q, []MessageContent{content(i)}); return err })
				}
				return calls
			},
			"publish": func(n int) (calls []func() error) {
				topic := putTopic(t, s, MessageQueue{Name: fmt.Sprint("t/topic", n), Tenant: tenantOf(t, s, "acme")})
				subscribe(t, s, topic, "s", func(q *MessageQueue) { q.Tenant = topic.Tenant })
				for i := range n {
					calls = append(calls, func() error { _, err := s.Bus.Send(ctx, topic, []MessageContent{content(i)}); return err })
				}
				return calls
			},
			"send on": func(n int) (calls []func() error) {
				q, target := made(false), made(false)
				q.ForwardTo = target.Name
				q, _, err := s.Bus.PutMessageQueue(ctx, q, 10_000)
				mustDo(t, err)
				for i := range n {
					calls = append(calls, func() error { _, err := s.Bus.Send(ctx, q, []MessageContent{content(i)}); return err })
				}
				return calls
			},
			"accept session": func(n int) (calls []func() error) {
				q := made(true)
				for i := range n {
					calls = append(calls, func() error { _, err := s.Bus.Sessions().Accept(ctx, q, fmt.Sprint("s", i)); return err })
				}
				return calls
			},
			"close session":        ofSessions(0, func(q MessageQueue, l SessionLock) error { return s.Bus.Sessions().Close(ctx, q, l) }),
			"renew session":        ofSessions(0, func(q MessageQueue, l SessionLock) error { _, err := s.Bus.Sessions().Renew(ctx, q, l); return err }),
			"set session state":    ofSessions(0, func(q MessageQueue, l SessionLock) error { return s.Bus.Sessions().SetState(ctx, q, l, []byte("x")) }),
			"receive in sessions":  ofSessions(1, func(q MessageQueue, l SessionLock) error { _, err := receiveIn(q, l, 1); return err }),
			"complete in sessions": inSessions(func(q MessageQueue, l queue.Lock) error { return s.Bus.Complete(ctx, q.Subqueue(false), l) }),
			"abandon in sessions":  inSessions(func(q MessageQueue, l queue.Lock) error { return s.Bus.Abandon(ctx, q, q.Subqueue(false), l, nil) }),
			"send to sessions": func(n int) (calls []func() error) {
				q := made(true)
				for i := range n {
					m := content(i)
					m.SessionID = fmt.Sprint("s", i%100)
					calls = append(calls, func() error { _, err := s.Bus.Send(ctx, q, []MessageContent{m}); return err })
				}
				return calls
			},
			"receive": func(n int) (calls []func() error) {
				q := made(false)
				for left := n; left > 0; left -= 500 {
					list := make([]MessageContent, min(left, 500))
					for i := range list {
						list[i] = content(i)
					}
					sendTo(t, s, q, list...)
				}
				for range n {
					calls = append(calls, func() error {
						_, err := s.Bus.Receive(ctx, ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20})
						return err
					})
				}
				return calls
			},
			"complete": settled(func(q MessageQueue, l queue.Lock) error { return s.Bus.Complete(ctx, q.Subqueue(false), l) }),
			"abandon":  settled(func(q MessageQueue, l queue.Lock) error { return s.Bus.Abandon(ctx, q, q.Subqueue(false), l, nil) }),
			"defer":    settled(func(q MessageQueue, l queue.Lock) error { return s.Bus.Defer(ctx, q.Subqueue(false), l, nil) }),
			"renew": settled(func(q MessageQueue, l queue.Lock) error {
				_, err := s.Bus.RenewMessage(ctx, q.Subqueue(false), l, time.Minute)
				return err
			}),
			"dead-letter": settled(func(q MessageQueue, l queue.Lock) error {
				return s.Bus.DeadLetter(ctx, q.Subqueue(false), l, DeadLettering{Reason: "r"}, nil)
			}),
		}
	})
}
