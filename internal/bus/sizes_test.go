package bus

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

func testLargestMessage(t *testing.T, s *stores, _ *clock) {
	const most = 1000
	q := putQueue(t, s, MessageQueue{State: entity.State{MaxMessage: most}})
	sendBytes := func(n int) error {
		_, err := s.Broker.Messages.Send(background, q, []MessageContent{{MessageID: "m", Body: make([]byte, n)}})
		return err
	}
	fits := most - len("m")
	if s.Broker.Client {
		fits -= 100 // what else it says of a message counts too
	}
	mustDo(t, sendBytes(fits))
	if err := sendBytes(most); forebay.CodeOf(err) != forebay.CodePayloadTooLarge {
		t.Errorf("too large a message: %v", err)
	}
	if n := len(peekAll(t, s, q.Subqueue(false))); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func testSizesAreCounted(t *testing.T, s *stores, c *clock) {
	q := putQueue(t, s, MessageQueue{})
	topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
	at := c.time().Add(time.Hour)
	sendTo(t, s, q, MessageContent{MessageID: "1", Body: []byte("12345")}, MessageContent{MessageID: "2", Body: []byte("1"), ScheduledAt: &at}, MessageContent{MessageID: "3"})
	dead := receiveOne(t, s, q)
	mustDo(t, s.Bus.DeadLetter(background, q.Subqueue(false), dead.Lock, DeadLettering{}, nil))
	sendTo(t, s, topic, MessageContent{MessageID: "2", Body: []byte("1"), ScheduledAt: &at})
	counts, err := s.Bus.MessageCounts(background, q, 10)
	if err != nil || counts.Size != 9 || counts.Capped || counts.DeadLetter != 1 {
		t.Errorf("counted %+v, %v", counts, err)
	}
	sendBodies(t, s, q, "1", "2", "3")
	if counts, err := s.Bus.MessageCounts(background, q, 2); err != nil || counts.Size >= 15 || counts.Size < 9 || !counts.Capped {
		t.Errorf("counted up to 2 of each kind %+v, %v", counts, err)
	}
	if counts, err := s.Bus.Entities().TopicCounts(background, topic, 10); err != nil || counts != (entity.TopicCounts{Subscriptions: 0, Scheduled: 1, Size: 2}) {
		t.Errorf("counted %+v, %v", counts, err)
	}
}
