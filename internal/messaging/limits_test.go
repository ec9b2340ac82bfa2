package messaging_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/stores"
)

// limited is a service with a queue of sessions, whose tenants have these limits. It is for a
// clock that stands still: where counting takes long, a count refuses for a while.
func limited(t *testing.T, l forebay.TenantLimits) *messaging.Service {
	t.Helper()
	s, err := stores.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "f.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	meter := limits.New(s.Tenants, l)
	t.Cleanup(func() { meter.Close(); s.DB.Close() })
	b, yes := messaging.New(messaging.Options{Store: s.Bus, MaxMessageBytes: 1000, Limits: meter}), true
	if _, _, err := b.Queues.Put(t.Context(), "acme", "orders", forebay.MessageQueueSettings{RequiresSession: &yes}); err != nil {
		t.Fatal(err)
	}
	return b
}

func accept(t *testing.T, b *messaging.Service, id string) (forebay.Session, error) {
	t.Helper()
	session, _, err := b.Sessions.Accept(t.Context(), "acme", "orders", forebay.AcceptSessionRequest{SessionID: id})
	return session, err
}

// A session counts whether a message creates it or a receiver that asks for it.
func TestAcceptedSessionsAreLimited(t *testing.T) {
	synctest.Test(t, acceptSessionsToTheLimit)
}

func acceptSessionsToTheLimit(t *testing.T) {
	most := int64(2)
	b := limited(t, forebay.TenantLimits{Sessions: &most})
	body := "x"
	sent := []forebay.NewMessage{{Body: &body, SessionID: "a"}}
	if _, err := b.Messages.Send(t.Context(), "acme", "orders", sent); err != nil {
		t.Fatal(err)
	}
	session, err := accept(t, b, "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := accept(t, b, "c"); forebay.CodeOf(err) != forebay.CodeTenantLimit {
		t.Errorf("a third session: %v", err)
	}
	if _, err := accept(t, b, "a"); err != nil {
		t.Errorf("a session that is there: %v", err)
	}
	if err := b.Sessions.Close(t.Context(), "acme", "orders", session.SessionToken); err != nil {
		t.Fatal(err)
	}
	if _, err := accept(t, b, "c"); err != nil {
		t.Errorf("in place of one that has gone: %v", err)
	}
}

// States of sessions are stored bytes. One that grows no state is taken at the limit.
func TestSessionStatesAreLimited(t *testing.T) {
	synctest.Test(t, setStatesToTheLimit)
}

func setStatesToTheLimit(t *testing.T) {
	most := int64(1000)
	b := limited(t, forebay.TenantLimits{StoredBytes: &most})
	session, err := accept(t, b, "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		size    int
		refused bool
	}{{1001, true}, {900, false}, {950, true}, {900, false}, {10, false}, {0, false}, {900, false}} {
		err := b.Sessions.SetState(t.Context(), "acme", "orders", session.SessionToken, forebay.SessionState{State: make([]byte, c.size)})
		if forebay.CodeOf(err) == forebay.CodeTenantLimit != c.refused || err != nil && !c.refused {
			t.Errorf("%d bytes: %v", c.size, err)
		}
	}
	if err := b.Sessions.SetState(t.Context(), "acme", "orders", session.SessionToken[:len(session.SessionToken)-1]+"0", forebay.SessionState{State: make([]byte, 2000)}); !errors.Is(err, forebay.ErrSessionLockLost) && forebay.CodeOf(err) != forebay.CodeInvalidRequest && forebay.CodeOf(err) != forebay.CodeTenantLimit {
		t.Errorf("without the lock: %v", err)
	}
}

// A redrive at a rate makes scheduled messages, and counts as if they were sent.
func TestRedrivesAtARateAreLimited(t *testing.T) {
	synctest.Test(t, redriveToTheLimit)
}

func redriveToTheLimit(t *testing.T) {
	most := int64(1)
	b := limited(t, forebay.TenantLimits{Scheduled: &most})
	ctx, number := t.Context(), []int64{}
	if _, _, err := b.Queues.Put(ctx, "acme", "mail", forebay.MessageQueueSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Messages.Send(ctx, "acme", "mail", make([]forebay.NewMessage, 3)); err != nil {
		t.Fatal(err)
	}
	got, err := b.Messages.Receive(ctx, "acme", "mail", forebay.ReceiveRequest{MaxMessages: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got {
		if err := b.Messages.DeadLetter(ctx, "acme", "mail", m.LockToken, forebay.Settlement{Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		number = append(number, m.SequenceNumber)
	}
	redrive := func(rate float64, numbers ...int64) (int, error) {
		r, err := b.DeadLetters.Redrive(ctx, "acme", "mail", forebay.RedriveMessagesRequest{RatePerSecond: rate,
			DeadMessageFilter: forebay.DeadMessageFilter{SequenceNumbers: numbers, All: len(numbers) == 0}})
		return r.Redriven, err
	}
	if n, err := redrive(1); forebay.CodeOf(err) != forebay.CodeTenantLimit || n != 0 {
		t.Errorf("all three: %d, %v", n, err)
	}
	if n, err := redrive(0.001, number[0], number[1]); err != nil || n != 2 { // the first goes at once
		t.Errorf("two: %d, %v", n, err)
	}
	if n, err := redrive(1, number[2]); err != nil || n != 1 {
		t.Errorf("one more, at once: %d, %v", n, err)
	}
}
