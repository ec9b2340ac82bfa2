package messaging

import (
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// An entity that another process dropped is unknown at once. One that it made again is there at
// once, however lately this process has used the one before.
func TestEntitiesOfAnotherProcess(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	processes := make([]*Service, 2)
	for i := range processes {
		s, err := openStores(t.Context(), db.Options{URL: url, Serve: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		processes[i] = New(Options{Store: s.Bus})
	}
	here, there := processes[0], processes[1]
	ctx, yes := t.Context(), true
	const queue, talks, topic = "orders", "talks", "news"
	put := func() {
		t.Helper()
		for name, settings := range map[string]forebay.MessageQueueSettings{queue: {}, talks: {RequiresSession: &yes}} {
			if _, _, err := there.Queues.Put(ctx, "acme", name, settings); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := there.Topics.Put(ctx, "acme", topic, forebay.TopicSettings{}); err != nil {
			t.Fatal(err)
		}
	}
	drop := func() {
		t.Helper()
		for _, name := range []string{queue, talks} {
			if err := there.Queues.Delete(ctx, "acme", name); err != nil {
				t.Fatal(err)
			}
		}
		if err := there.Topics.Delete(ctx, "acme", topic); err != nil {
			t.Fatal(err)
		}
	}
	remember := func() {
		t.Helper()
		for _, name := range []string{queue, talks, topic} {
			if _, err := here.Raw.Current(ctx, "acme", name); err != nil {
				t.Fatal(err)
			}
		}
	}
	inSession := text("x")
	inSession.SessionID = "one"
	uses := map[string]func() error{
		"attach to a queue": func() error { _, err := here.Raw.Current(ctx, "acme", queue); return err },
		"attach to a topic": func() error { _, err := here.Raw.Current(ctx, "acme", "NEWS"); return err },
		"send": func() error {
			_, err := here.Messages.Send(ctx, "acme", queue, []forebay.NewMessage{text("x")})
			return err
		},
		"send over AMQP": func() error {
			_, err := here.Raw.Send(ctx, "acme", queue, []message.Content{raw("x")})
			return err
		},
		"commit": func() error {
			step := Step{Kind: bus.StepSend, Path: queue, Messages: []bus.MessageContent{{MessageID: "x", Text: true, Body: []byte("x")}}}
			_, err := here.Transactions.Commit(ctx, "acme", []Step{step})
			return err
		},
		"publish": func() error {
			_, err := here.Messages.Publish(ctx, "acme", topic, []forebay.NewMessage{text("x")})
			return err
		},
		"receive": func() error {
			got, err := here.Messages.Receive(ctx, "acme", queue, forebay.ReceiveRequest{WaitSeconds: 30})
			if err == nil && len(got) != 1 {
				t.Errorf("received %d messages", len(got))
			}
			return err
		},
		"get a queue":    func() error { _, err := here.Queues.Get(ctx, "acme", queue); return err },
		"delete a queue": func() error { return here.Queues.Delete(ctx, "acme", queue) },
		"delete a topic": func() error { return here.Topics.Delete(ctx, "acme", topic) },
		"peek": func() error {
			got, _, err := here.Messages.Peek(ctx, "acme", queue, PeekFilter{Limit: 10})
			if err == nil && len(got) != 1 {
				t.Errorf("peeked at %d messages", len(got))
			}
			return err
		},
		"subscribe": func() error {
			_, _, err := here.Subscriptions.Put(ctx, "acme", topic, "all", forebay.SubscriptionSettings{})
			return err
		},
		"accept a session": func() error {
			_, _, err := here.Sessions.Accept(ctx, "acme", talks, forebay.AcceptSessionRequest{SessionID: "two"})
			return err
		},
		"accept the next session": func() error {
			_, found, err := here.Sessions.Accept(ctx, "acme", talks, forebay.AcceptSessionRequest{WaitSeconds: 30})
			if err == nil && !found {
				t.Error("no session was found")
			}
			return err
		},
	}
	for what, use := range uses {
		put()
		remember()
		drop()
		if err := use(); forebay.CodeOf(err) != forebay.CodeUnknownQueue && forebay.CodeOf(err) != forebay.CodeNotFound {
			t.Errorf("%s where there is nothing: %v", what, err)
		}
		put()
		remember()
		drop()
		put()
		for _, m := range []struct {
			to string
			forebay.NewMessage
		}{{queue, text("x")}, {talks, inSession}} {
			if _, err := there.Messages.Send(ctx, "acme", m.to, []forebay.NewMessage{m.NewMessage}); err != nil {
				t.Fatal(err)
			}
		}
		if err := use(); err != nil {
			t.Errorf("%s where it was made again: %v", what, err)
		}
		put() // if it was deleted
		drop()
	}
}
