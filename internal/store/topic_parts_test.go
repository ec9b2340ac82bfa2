package store

import (
	"fmt"
	"testing"
	"time"
)

// A send whose copies are too many for one transaction makes them in several, each message with all its copies at once.
func TestSendInParts(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		const messages, listeners = 60, 50
		topic := putTopic(t, s, MessageQueue{Name: "t/topic", DuplicateWindow: time.Hour})
		subs := manySubscriptions(t, s, topic, listeners)
		known := send(t, s, topic, numbered(0, 1)...)
		later := scheduled(2)[1]
		all := append(numbered(0, messages), later) // of which the first is a duplicate, and the last one of the second too
		seqs := send(t, s, topic, all...)
		if seqs[0] != known[0] || seqs[messages] != seqs[1] {
			t.Errorf("duplicates have the numbers %d and %d, not %d and %d", seqs[0], seqs[messages], known[0], seqs[1])
		}
		for _, sub := range subs {
			got := peekAll(t, s, sub.Lane(false))
			if len(got) != messages {
				t.Fatalf("%s has %d messages", sub.Name, len(got))
			}
			for i, m := range got {
				if m.Subject != fmt.Sprint("m", i) || m.EnqueuedSeq != seqs[i] {
					t.Errorf("%s has %s with the number %d as its message %d, which is %d", sub.Name, m.Subject, m.EnqueuedSeq, i, seqs[i])
				}
			}
		}
		err := s.read(t.Context(), func(c conn) error {
			return c.prep("SELECT enqueued_at, lane % 4, count(*), count(DISTINCT message_id) FROM bodies GROUP BY 1, 2").each(func(r row) error {
				if r.int(2) > 2*fullCopies+listeners || r.int(2) != r.int(3)*listeners {
					t.Errorf("there are %d copies of %d messages of one time", r.int(2), r.int(3))
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// What a sender does not hand out becomes active by itself, once, and what comes to the topic meanwhile comes after it, though it
// makes few copies.
func TestSendInPartsWithoutItsSender(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		const messages = 40
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		subs := manySubscriptions(t, s, topic, 50)
		all := numbered(0, messages)
		judged, err := s.judge(t.Context(), topic.No, all, true)
		mustDo(t, err)
		stored, err := s.sendJudged(t.Context(), topic, all, 0, judged)
		if err != nil || !stored.waits {
			t.Fatal(stored, err)
		}
		fresh := subscribe(t, s, topic, "fresh")
		if count, err := s.TopicCounts(t.Context(), topic, CountLimit); err != nil || count.Scheduled != messages {
			t.Errorf("%d messages wait (%v)", count.Scheduled, err)
		}
		if cancelled, err := s.CancelScheduled(t.Context(), topic, stored.seqs[0]); err != nil || cancelled {
			t.Errorf("a message was cancelled of which there may be copies (%v)", err)
		}
		if _, err := transact(t.Context(), s, stageChange, func(t *tx) (struct{}, error) {
			return struct{}{}, t.publish(topic.Name, func() (MessageContent, error) { return content("event", 1), nil })
		}); err != nil {
			t.Fatal(err)
		}
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE rank = 2")
		want := ""
		for i := range messages {
			want += fmt.Sprint("m", i, " ")
		}
		for _, sub := range append(subs, fresh) {
			if got := subjects(t, s, sub.Lane(false)); got != want+"event" {
				t.Fatalf("%s has %s", sub.Name, got)
			}
		}
	})
}
