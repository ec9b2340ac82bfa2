package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// receive takes so many messages of a queue under locks.
func receive(t testing.TB, s *stores, q MessageQueue, n int) []Message {
	t.Helper()
	got, err := s.Bus.Receive(context.Background(), ReceiveRequest{Queue: q, Max: n, MaxBytes: 1 << 24})
	if err != nil || len(got) != n {
		t.Fatalf("received %d of %d messages: %v", len(got), n, err)
	}
	return got
}

// named makes a queue of that name with these settings.
func named(t testing.TB, s *stores, name string, q MessageQueue) MessageQueue {
	t.Helper()
	q.Tenant, q.Name, q.Lock, q.MaxDeliveries = max(q.Tenant, 1), name, time.Hour, testMaxDeliveries
	stored, _, err := s.Bus.PutMessageQueue(context.Background(), q, 100)
	mustDo(t, err)
	return stored
}

func sends(q MessageQueue, messages ...MessageContent) Step {
	return Step{Kind: StepSend, Queue: q, Messages: messages}
}

func completes(q MessageQueue, m Message) Step {
	return Step{Kind: StepComplete, Queue: q, Lock: m.Lock}
}

// Every kind of step happens in a commit, and what topics and forwarding make of its messages is
// there at once.
func TestCommit(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		ctx := t.Context()
		from, to := named(t, s, "t/from", MessageQueue{}), named(t, s, "t/to", MessageQueue{})
		forwards := named(t, s, "t/forwards", MessageQueue{ForwardTo: to.Name})
		inSessions := named(t, s, "t/sessions", MessageQueue{RequiresSession: true})
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		sub := subscribe(t, s, topic, "sub")
		send(t, s, from, numbered(0, 5)...)
		got := receive(t, s, from, 5)
		at := time.Now().Add(time.Hour)
		later := content("later", 1)
		later.ScheduledAt = &at
		cancelled := send(t, s, topic, later)[0]
		session, err := s.Bus.Sessions().Accept(ctx, inSessions, "a")
		mustDo(t, err)
		inA := content("in a", 1)
		inA.SessionID = "a"
		settles := func(i int, kind StepKind) Step {
			return Step{Kind: kind, Queue: from, Lock: got[i].Lock}
		}
		dead := settles(3, StepDeadLetter)
		dead.Changed, dead.Why = forebay.Properties{"n": int64(7)}, DeadLettering{Reason: "because"}
		numbers, err := TakeNumbers(ctx, s.Bus, 1, 1)
		mustDo(t, err)
		scheduled := sends(to, later)
		scheduled.Numbers = numbers
		seqs, err := s.Bus.Commit(ctx, []Step{
			settles(0, StepComplete), sends(to, content("one", 1)), settles(1, StepAbandon), sends(topic, content("two", 2)), settles(2, StepDefer), dead,
			settles(4, StepRelease), sends(to, content("three", 3), content("four", 4)), sends(forwards, content("five", 5)), sends(inSessions, inA),
			{Kind: StepCancel, Queue: topic, Seq: cancelled}, {Kind: StepState, Queue: inSessions, Session: session.SessionLock, State: []byte("state")}, scheduled,
		})
		mustDo(t, err)
		if len(seqs) != 13 || len(seqs[7]) != 2 || seqs[0] != nil || seqs[12][0] != numbers[0].Seq {
			t.Errorf("numbers by step: %v", seqs)
		}
		all := peekAll(t, s, to.Subqueue(false))
		have := func(seq int64) string {
			if i := slices.IndexFunc(all, func(m Message) bool { return m.Seq == seq }); i >= 0 {
				return all[i].Subject
			}
			return "nothing"
		}
		if len(all) != 5 || have(seqs[1][0]) != "one" || have(seqs[7][1]) != "four" || have(seqs[12][0]) != "later" {
			t.Errorf("%d messages arrived: %+v", len(all), all)
		}
		if deadLetters := peekAll(t, s, from.Subqueue(true)); len(deadLetters) != 1 || deadLetters[0].DeadLetterReason != "because" || string(deadLetters[0].Properties) != `{"n":7}` {
			t.Errorf("dead letters: %+v", deadLetters)
		}
		for subqueue, want := range map[string]string{
			subjects(t, s, from.Subqueue(false)): "m1 m2 m4", subjects(t, s, sub.Subqueue(false)): "two",
			subjects(t, s, inSessions.Subqueue(false)): "in a", subjects(t, s, topic.Subqueue(false)): "",
		} {
			if subqueue != want {
				t.Errorf("there is %q, not %q", subqueue, want)
			}
		}
		counts, err := s.Bus.MessageCounts(ctx, from, entity.CountLimit)
		if counts.OldestActive, counts.Size = 0, 0; err != nil || counts != (entity.Counts{Active: 2, Deferred: 1, DeadLetter: 1}) {
			t.Errorf("%+v (%v)", counts, err)
		}
		if state, err := s.Bus.Sessions().State(ctx, inSessions, session.SessionLock); err != nil || string(state) != "state" {
			t.Errorf("state %q (%v)", state, err)
		}
	})
}

// A message for which a number was taken gets another if it is active by the time of the commit.
// A client finds it by the number that it was told.
func TestNumberTakenForAMessageThatIsActive(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		q := putQueue(t, s, MessageQueue{})
		numbers, err := TakeNumbers(t.Context(), s.Bus, 1, 1)
		mustDo(t, err)
		before := send(t, s, q, content("before", 1))[0]
		at, m := time.Now().Add(-time.Second), content("active", 1)
		m.ScheduledAt = &at
		_, err = s.Bus.Commit(t.Context(), []Step{{Kind: StepSend, Queue: q, Messages: []MessageContent{m}, Numbers: numbers}})
		mustDo(t, err)
		got := receive(t, s, q, 2)
		if got[1].Subject != "active" || got[1].Seq <= before || got[1].EnqueuedSeq != numbers[0].Seq {
			t.Errorf("%s has the numbers %d and %d; %d was taken, and %d came before", got[1].Subject, got[1].Seq, got[1].EnqueuedSeq, numbers[0].Seq, before)
		}
	})
}

// contents is everything that the database has of messages.
func contents(t *testing.T, s *stores) (all string) {
	t.Helper()
	err := s.DB.Read(t.Context(), func(c driver.Conn) error {
		for _, sql := range []string{
			"SELECT seq, subqueue, flow, visible_at, coalesce(lock_token, 0), deliveries, size FROM messages ORDER BY seq",
			"SELECT seq, subqueue, length(body), coalesce(length(properties), 0), coalesce(due_at, 0), 0, 0 FROM bodies ORDER BY seq",
			"SELECT no, queue, coalesce(length(state), 0), coalesce(locked_until, 0), coalesce(visible_at, 0), 0, 0 FROM sessions ORDER BY no",
			"SELECT seq, queue, forget_at, 0, 0, 0, 0 FROM message_ids ORDER BY queue, id",
		} {
			err := c.Prep(sql).Each(func(r driver.Row) error {
				for i := range 7 {
					all += fmt.Sprint(r.Int(i), " ")
				}
				all += "\n"
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	mustDo(t, err)
	return all
}

// Whatever one step is refused for, none is done. Nor do commits beside it in the same transaction
// suffer.
func TestCommitOfAllOrNothing(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		ctx := t.Context()
		q := named(t, s, "t/q", MessageQueue{DuplicateWindow: time.Hour})
		inSessions := named(t, s, "t/sessions", MessageQueue{RequiresSession: true})
		gone := named(t, s, "t/gone", MessageQueue{})
		caring := named(t, s, "t/caring", MessageQueue{ForwardDeadLettersTo: q.Name})
		theirs := named(t, s, "u/q", MessageQueue{Tenant: tenantOf(t, s, "u") + 1})
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		manySubscriptions(t, s, topic, 51)
		if _, err := s.Bus.DropMessageQueue(ctx, gone); err != nil {
			t.Fatal(err)
		}
		send(t, s, caring, numbered(0, 8)...)
		got := receive(t, s, caring, 8)
		lost := got[7]
		mustDo(t, s.Bus.Complete(ctx, caring.Subqueue(false), lost.Lock))
		session, err := s.Bus.Sessions().Accept(ctx, inSessions, "a")
		mustDo(t, err)
		closed, err := s.Bus.Sessions().Accept(ctx, inSessions, "b")
		mustDo(t, err)
		mustDo(t, s.Bus.Sessions().Close(ctx, inSessions, closed.SessionLock))
		later := scheduled(1)[0]
		cancelled := send(t, s, q, later)[0]
		big := forebay.Properties{}
		for i := range 3 {
			big[fmt.Sprint("p", i)] = strings.Repeat("x", 30<<10)
		}
		good := []Step{
			completes(caring, got[0]), sends(q, content("fresh", 1), content("fresh too", 2)), sends(topic, content("copied", 1)),
			{Kind: StepDeadLetter, Queue: caring, Lock: got[1].Lock, Changed: forebay.Properties{"x": "y"}, Why: DeadLettering{Reason: "r"}},
			{Kind: StepDefer, Queue: caring, Lock: got[2].Lock}, {Kind: StepCancel, Queue: q, Seq: cancelled},
			{Kind: StepState, Queue: inSessions, Session: session.SessionLock, State: []byte("x")},
		}
		large := content("large", 1)
		large.Body = make([]byte, MaxCommitBytes)
		refused := map[string]struct {
			step Step
			code forebay.Code
		}{
			"a lock that is lost":         {completes(caring, lost), forebay.CodeLockLost},
			"a lock of another queue":     {Step{Kind: StepAbandon, Queue: q, Lock: got[3].Lock}, forebay.CodeLockLost},
			"a session that is lost":      {Step{Kind: StepState, Queue: inSessions, Session: closed.SessionLock}, forebay.CodeSessionLockLost},
			"nothing is scheduled":        {Step{Kind: StepCancel, Queue: q, Seq: got[3].Seq}, forebay.CodeNotFound},
			"the properties become large": {Step{Kind: StepDefer, Queue: caring, Lock: got[3].Lock, Changed: big}, forebay.CodePayloadTooLarge},
			"no session id":               {sends(inSessions, content("none", 1)), forebay.CodeInvalidRequest},
			"the queue is gone":           {sends(gone, content("none", 1)), forebay.CodeUnknownQueue},
			"another tenant's queue":      {sends(theirs, content("none", 1)), forebay.CodeUnknownQueue},
			"the same message twice":      {Step{Kind: StepAbandon, Queue: caring, Lock: got[0].Lock}, forebay.CodeInvalidRequest},
			"too many copies":             {sends(topic, numbered(0, 19)...), forebay.CodePayloadTooLarge},
			"too many steps":              {sends(q, numbered(0, MaxCommitSteps)...), forebay.CodeInvalidRequest},
			"too many bytes":              {sends(q, large), forebay.CodePayloadTooLarge},
		}
		before := contents(t, s)
		for name, r := range refused {
			for _, steps := range [][]Step{append(slices.Clone(good), r.step), append([]Step{r.step}, good...)} {
				_, err := s.Bus.Commit(ctx, steps)
				if code := forebay.CodeOf(err); err == nil || code != r.code && name != "the properties become large" {
					t.Errorf("%s: %v", name, err)
				}
				if now := contents(t, s); now != before {
					t.Fatalf("%s, and something changed:\n%s\nwas\n%s", name, now, before)
				}
			}
		}
		var calls []func() error
		for _, r := range refused {
			calls = append(calls, func() error { _, err := s.Bus.Commit(ctx, append(slices.Clone(good), r.step)); return err })
		}
		calls = append(calls, func() error { _, err := s.Bus.Commit(ctx, good); return err })
		calls = append(calls, func() error { _, err := s.Bus.Send(ctx, q, []MessageContent{content("beside", 1)}); return err })
		var callers sync.WaitGroup
		ends := make([]error, len(calls))
		for i, call := range calls {
			callers.Go(func() { ends[i] = call() })
		}
		callers.Wait()
		for i, err := range ends {
			if (err == nil) != (i >= len(refused)) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if got := subjects(t, s, q.Subqueue(false)); !slices.Contains([]string{"m1 fresh fresh too beside", "beside m1 fresh fresh too"}, got) {
			t.Errorf("the queue has %q", got)
		}
	})
}

// A topic that changes between the judgement and the transaction is judged again.
func TestCommitIsJudgedAgain(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		ctx := t.Context()
		topic, q := putTopic(t, s, MessageQueue{Name: "t/topic"}), named(t, s, "t/q", MessageQueue{})
		first := subscribe(t, s, topic, "first")
		steps := []Step{sends(q, content("one", 1)), sends(topic, content("one", 1))}
		c, err := newCommit(steps)
		mustDo(t, err)
		c.sends[1].judged, err = s.Bus.judge(ctx, topic.No, c.sends[1].messages, false)
		mustDo(t, err)
		second := subscribe(t, s, topic, "second")
		_, err = db.TransactIn(ctx, Key, s.DB.Writer, c.operation(), func(t *Tx) ([][]int64, error) { return t.commit(c) })
		if !topicChanged(err) || subjects(t, s, q.Subqueue(false)) != "" {
			t.Errorf("what older rules have judged was committed: %v", err)
		}
		_, err = s.Bus.Commit(ctx, steps)
		mustDo(t, err)
		for _, sub := range []MessageQueue{first, second, q} {
			if got := subjects(t, s, sub.Subqueue(false)); got != "one" {
				t.Errorf("%s has %q", sub.Name, got)
			}
		}
		c.sends[1].judged = nil // as when the topic changes each time
		_, err = db.TransactIn(ctx, Key, s.DB.Writer, c.operation(), func(t *Tx) ([][]int64, error) { return t.commit(c) })
		mustDo(t, err)
		if got := subjects(t, s, second.Subqueue(false)); got != "one one" {
			t.Errorf("judged in the transaction, the subscription has %q", got)
		}
	})
}

// Commits settle some of the same messages. Each message is settled by one of them. Each commit
// sends its message if and only if it settled its own.
func TestCommitsWithTheSameLocks(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const messages, commits = 24, 96
		from, to := named(t, s, "t/from", MessageQueue{}), named(t, s, "t/to", MessageQueue{})
		send(t, s, from, numbered(0, messages)...)
		got := receive(t, s, from, messages)
		var callers sync.WaitGroup
		var mu sync.Mutex
		settled, done := map[int]int{}, map[string]bool{}
		for i := range commits {
			a, b := i%messages, (i*7+i/messages+1)%messages
			if a == b {
				b = (b + 1) % messages
			}
			callers.Go(func() {
				marker := fmt.Sprint("commit ", i)
				_, err := s.Bus.Commit(t.Context(), []Step{completes(from, got[a]), sends(to, content(marker, 1)), completes(from, got[b])})
				if err != nil && !errors.Is(err, forebay.ErrLockLost) {
					t.Error(err)
				}
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					settled[a]++
					settled[b]++
					done[marker] = true
				}
			})
		}
		callers.Wait()
		for i, times := range settled {
			if times != 1 {
				t.Errorf("message %d was settled %d times", i, times)
			}
		}
		if left := len(peekAll(t, s, from.Subqueue(false))); left != messages-len(settled) || len(done) == 0 {
			t.Errorf("%d messages are left of %d, %d of which were settled", left, messages, len(settled))
		}
		sent := peekAll(t, s, to.Subqueue(false))
		for _, m := range sent {
			if !done[m.Subject] {
				t.Errorf("%s was refused and has sent", m.Subject)
			}
		}
		if len(sent) != len(done) {
			t.Errorf("%d commits have sent %d messages", len(done), len(sent))
		}
	})
}

// A tenant that commits much does not keep another from its turn.
func TestCommitsTakeTurns(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		busy, calm := named(t, s, "t/q", MessageQueue{}), named(t, s, "u/q", MessageQueue{Tenant: tenantOf(t, s, "u") + 1})
		var calls []func() error
		for i := range 8 {
			calls = append(calls, func() error {
				_, err := s.Bus.Commit(t.Context(), []Step{sends(busy, numbered(i*100, MaxCommitSteps)...)})
				return err
			})
		}
		calls = append(calls, func() error { _, err := s.Bus.Commit(t.Context(), []Step{sends(calm, content("calm", 1))}); return err })
		for _, err := range dbtest.InOneTransaction(t, s.DB, calls...) {
			mustDo(t, err)
		}
		before := 0
		at := peekAll(t, s, calm.Subqueue(false))[0].EnqueuedAt
		mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
			_, err := c.Prep("SELECT count(*) FROM bodies WHERE enqueued_at < ?").Int(at.UnixMilli()).One(func(r driver.Row) { before = int(r.Int(0)) })
			return err
		}))
		if before > 2*MaxCommitSteps {
			t.Errorf("the other tenant waited for %d rows", before)
		}
	})
}

// Everything that a step stores counts, whatever its type.
func TestWeightOfSteps(t *testing.T) {
	large := forebay.Properties{"text": strings.Repeat("x", 1000), "bytes": make([]byte, 1000), "number": int64(1)}
	step := Step{Kind: StepAbandon, Changed: large}
	if steps, bytes := step.Weight(); steps != 1 || bytes < 2000 || bytes > 2100 {
		t.Errorf("%d steps, %d bytes", steps, bytes)
	}
}
