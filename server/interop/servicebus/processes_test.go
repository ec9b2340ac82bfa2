package servicebus_test

import (
	"testing"

	"github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay"
)

// A client that attaches to one server right after another server has dropped an entity, and made
// it again, finds the new one.
func TestServiceBusOfTwoServers(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, "postgresql")
	here, there := startGoBus(t, on(database)), startGoBus(t, on(database))
	yes := true
	put := func() {
		there.queue(t, "orders", forebay.MessageQueueSettings{})
		there.queue(t, "talks", forebay.MessageQueueSettings{RequiresSession: &yes})
		there.send("orders", text("to the queue"))
		m := text("to the session")
		m.SessionID = ptr("one")
		there.send("talks", m)
	}
	take := func() error {
		orders := here.receiver("orders", nil)
		defer func() { _ = orders.Close(t.Context()) }()
		got, err := orders.ReceiveMessages(within(t), 1, nil)
		if err != nil {
			return err
		}
		if len(got) != 1 || orders.CompleteMessage(within(t), got[0], nil) != nil {
			t.Errorf("received %d messages of the queue", len(got))
		}
		session, err := here.AcceptNextSessionForQueue(within(t), "talks", nil)
		if err != nil {
			return err
		}
		defer func() { _ = session.Close(t.Context()) }()
		got, err = session.ReceiveMessages(within(t), 1, nil)
		if err != nil {
			return err
		}
		if len(got) != 1 || session.CompleteMessage(within(t), got[0], nil) != nil {
			t.Errorf("received %d messages of the session", len(got))
		}
		return nil
	}
	for range 3 {
		put()
		if err := take(); err != nil {
			t.Error(err)
		}
		for _, queue := range []string{"orders", "talks"} {
			if err := there.DeleteMessageQueue(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := take(); condition(err) != amqp.ErrCondNotFound {
		t.Errorf("received of a queue that another server dropped: %v", err)
	}
	if _, err := here.AcceptNextSessionForQueue(within(t), "talks", nil); condition(err) != amqp.ErrCondNotFound {
		t.Errorf("accepted a session of a queue that another server dropped: %v", err)
	}
}
