package jobs

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/jobs/request"
	"github.com/forebayhq/forebay/internal/queue"
)

// Where an answer goes may be read as the transaction begins. What another operation of the
// transaction does to queues counts all the same, for it runs before answers are sent. Events of
// jobs that could not be answered follow those of what else happened to them.
func TestAnswersWhereQueuesChangeTogether(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		ctx, tenant, q := t.Context(), tenantNamed(t, s, "acme"), queueOf(t, s, "q")
		queueNamed := func(name string, change func(*bus.MessageQueue)) bus.MessageQueue {
			m := bus.MessageQueue{Tenant: tenant, Name: "acme/" + name, Lock: time.Minute, MaxDeliveries: 5}
			if change != nil {
				change(&m)
			}
			m, _, err := s.Bus.PutMessageQueue(ctx, m, 10)
			mustDo(t, err)
			return m
		}
		puts := func(m bus.MessageQueue, change func(*bus.MessageQueue)) func() error {
			change(&m)
			return func() error { _, _, err := s.Bus.PutMessageQueue(ctx, m, 10); return err }
		}
		kept, gone, shut := queueNamed("kept", nil), queueNamed("gone", nil), queueNamed("shut", nil)
		onward := queueNamed("onward", nil)
		made := bus.MessageQueue{Tenant: tenant, Name: "acme/made", Lock: time.Minute, MaxDeliveries: 5}

		names := []string{"kept", "gone", "shut", "onward", "made"}
		i := 0
		put(t, s, tenant, q, 3*len(names), func(n *NewJob) {
			var err error
			n.Reply, err = request.EncodeReply("acme", &forebay.ReplyTo{Entity: names[i%len(names)], CorrelationID: fmt.Sprint(i)})
			mustDo(t, err)
			i++
		})
		locked, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(q, queue.SubqueueMain), Max: 3 * len(names), MaxBytes: 1 << 20, Lock: time.Minute,
			MaxDeliveries: 3, FailureSubqueue: queue.SubqueueDeadLetter})
		if err != nil || len(locked) != 3*len(names) {
			t.Fatalf("claimed %d: %v", len(locked), err)
		}
		slices.SortFunc(locked, func(a, b LockedJob) int { return int(a.Seq - b.Seq) })

		var settled, changed []func() error
		for i := range locked {
			d := &locked[i]
			switch i / len(names) {
			case 0:
				settled = append(settled, func() error { return s.Jobs.Succeed(ctx, d, wentWell, Output{Inline: []byte("1"), Size: 1}) })
			case 1: // dead-lettered and sent back in one transaction
				settled = append(settled, func() error { return s.Jobs.DeadLetter(ctx, d, wentBad, queue.SubqueueDeadLetter, "bad") })
				changed = append(changed, func() error {
					_, err := s.Jobs.Redrive(ctx, []Redrive{{Seq: d.Seq}}, audit.Act{Action: "redrive"})
					return err
				})
			case 2:
				changed = append(changed, func() error { _, err := s.Jobs.Cancel(ctx, d.Seq); return err })
			}
		}
		changed = append(changed, puts(made, func(*bus.MessageQueue) {}),
			puts(shut, func(m *bus.MessageQueue) { m.Status = forebay.EntitySendDisabled }),
			puts(onward, func(m *bus.MessageQueue) { m.ForwardTo = kept.Name }),
			func() error {
				if dropped, err := s.Bus.DropMessageQueue(ctx, gone); err != nil || !dropped {
					return fmt.Errorf("dropped: %v (%w)", dropped, err)
				}
				return nil
			})
		mustDo(t, errors.Join(dbtest.InOneTransaction(t, s.DB, append(settled, changed...)...)...))

		for i, d := range locked {
			to := names[i%len(names)]
			events, err := s.Jobs.Events(ctx, d.Seq, 0, 100)
			mustDo(t, err)
			failed := false
			for n, e := range events {
				if failed = failed || e.Type == forebay.EventReplyFailed; e.Number != int64(n+1) {
					t.Errorf("job %d for %s: event %d is number %d", i, to, n, e.Number)
				}
			}
			if want := to == "gone" || to == "shut"; failed != want {
				t.Errorf("job %d for %s: told of a failed reply: %v", i, to, failed)
			}
		}
		found := map[string]int{}
		for found["kept"] < 6 {
			got, err := s.Bus.Receive(ctx, bus.ReceiveRequest{Queue: kept, Max: 10, MaxBytes: 1 << 20, Delete: true, Wait: true})
			mustDo(t, err)
			found["kept"] += len(got)
		}
		made, _, err = s.Bus.PutMessageQueue(ctx, made, 10)
		mustDo(t, err)
		for _, m := range []bus.MessageQueue{kept, onward, shut, made} {
			got, err := s.Bus.Receive(ctx, bus.ReceiveRequest{Queue: m, Max: 10, MaxBytes: 1 << 20, Delete: true})
			mustDo(t, err)
			found[m.Name] = len(got)
		}
		if found["acme/kept"] != 0 || found["acme/onward"] != 0 || found["acme/shut"] != 0 || found["acme/made"] != 3 {
			t.Errorf("found %v", found)
		}
	})
}

// The queue of an answer may be dropped by an operation that leaves alone what the others have
// read as the transaction began. The answer is not sent there all the same.
func TestAnswersToAQueueThatIsDroppedTogether(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		ctx, tenant, q := t.Context(), tenantNamed(t, s, "acme"), queueOf(t, s, "q")
		gone, _, err := s.Bus.PutMessageQueue(ctx, bus.MessageQueue{Tenant: tenant, Name: "acme/gone", Lock: time.Minute, MaxDeliveries: 5}, 10)
		mustDo(t, err)
		put(t, s, tenant, q, 1, func(n *NewJob) {
			n.Reply, err = request.EncodeReply("acme", &forebay.ReplyTo{Entity: "gone"})
			mustDo(t, err)
		})
		locked, err := s.Jobs.Claim(ctx, ClaimRequest{Subqueue: queue.SubqueueOf(q, queue.SubqueueMain), Max: 1, MaxBytes: 1 << 20, Lock: time.Minute,
			MaxDeliveries: 3, FailureSubqueue: queue.SubqueueDeadLetter})
		if err != nil || len(locked) != 1 {
			t.Fatalf("claimed %d: %v", len(locked), err)
		}
		mustDo(t, errors.Join(dbtest.InOneTransaction(t, s.DB,
			func() error { return s.Jobs.Succeed(ctx, &locked[0], wentWell, Output{Inline: []byte("1"), Size: 1}) },
			func() error { _, err := s.Bus.DropMessageQueue(ctx, gone); return err })...))
		events, err := s.Jobs.Events(ctx, locked[0].Seq, 0, 100)
		mustDo(t, err)
		if !slices.ContainsFunc(events, func(e forebay.Event) bool { return e.Type == forebay.EventReplyFailed }) {
			t.Errorf("the answer was sent to a queue that was dropped: %+v", events)
		}
	})
}
