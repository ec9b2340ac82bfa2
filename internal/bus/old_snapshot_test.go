package bus

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/queue"
)

// While somebody keeps an old snapshot on the server, what a receiver reads does not grow with the
// messages that are gone.
func TestOldSnapshotDoesNotSlowReceivers(t *testing.T) {
	t.Parallel()
	const n, atOnce = 1200, 10
	due := func(int, *MessageContent) {}
	for name, c := range map[string]struct {
		indexes  []string
		sessions bool
		change   func(i int, m *MessageContent)
	}{
		"messages":  {indexes: []string{"messages_ready"}, change: due},
		"sessions":  {indexes: []string{"sessions_ready"}, sessions: true, change: func(i int, m *MessageContent) { m.SessionID = fmt.Sprint("s", i) }},
		"scheduled": {indexes: []string{"bodies_due"}, change: func(_ int, m *MessageContent) { at := time.Now().Add(5 * time.Millisecond); m.ScheduledAt = &at }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fixture.FewEntriesRead(t, n, 10, c.indexes, func(s *stores) {
				q, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Name: "acme/q", Tenant: tenantOf(t, s, "acme"), Lock: time.Minute, MaxDeliveries: 3,
					RequiresSession: c.sessions}, 10)
				mustDo(t, err)
				for i := 0; i < n; {
					list := make([]MessageContent, atOnce)
					for k := range list {
						list[k] = MessageContent{MessageID: fmt.Sprint("m", i), Body: []byte("1"), Text: true}
						c.change(i, &list[k])
						i++
					}
					sendTo(t, s, q, list...)
					for got := 0; got < atOnce; {
						got += receiveAll(t, s, q, c.sessions)
					}
				}
			})
		})
	}
}

// receiveAll waits for messages, of a session if the queue has sessions, completes them, and
// returns how many there were.
func receiveAll(t *testing.T, s *stores, q MessageQueue, sessions bool) int {
	t.Helper()
	req := ReceiveRequest{Queue: q, Max: 100, MaxBytes: 1 << 30, Wait: true}
	if sessions {
		one, err := s.Bus.Sessions().AcceptNext(t.Context(), q, true)
		mustDo(t, err)
		req.Session = &one.SessionLock
	}
	list, err := s.Bus.Receive(t.Context(), req)
	mustDo(t, err)
	locks := make([]queue.Lock, len(list))
	for i := range list {
		locks[i] = list[i].Lock
	}
	failed, err := s.Bus.CompleteMany(t.Context(), q.Subqueue(false), locks)
	mustDo(t, err)
	for _, err := range failed {
		mustDo(t, err)
	}
	if sessions {
		mustDo(t, s.Bus.Sessions().Close(t.Context(), q, *req.Session))
	}
	return len(list)
}

// A message that gets its old place back is before where other processes begin to look. They are
// told.
func TestAbandonedMessageIsFoundByOtherProcesses(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	a, b := fixture.Serving(t, db.Options{URL: url}), fixture.Serving(t, db.Options{URL: url})
	_, err := db.TransactIn(t.Context(), Key, a.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (int, error) {
		t.W.Polling = time.Hour // it finds nothing by looking
		return 0, nil
	})
	mustDo(t, err)
	q, _, err := a.Bus.PutMessageQueue(t.Context(), MessageQueue{Name: "acme/q", Tenant: tenantOf(t, a, "acme"), Lock: time.Hour, MaxDeliveries: 3}, 10)
	mustDo(t, err)
	receive := func(s *stores, id string) Message {
		got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1 << 20, Wait: true})
		if err != nil || len(got) != 1 || got[0].MessageID != id {
			t.Fatalf("received %v, not %s: %v", got, id, err)
		}
		return got[0]
	}
	sendTo(t, a, q, MessageContent{MessageID: "first", Body: []byte("1")})
	first := receive(b, "first")
	sendTo(t, a, q, MessageContent{MessageID: "second", Body: []byte("1")})
	receive(a, "second")
	mustDo(t, b.Bus.Abandon(t.Context(), q, q.Subqueue(false), first.Lock, nil))
	receive(a, "first")
}
