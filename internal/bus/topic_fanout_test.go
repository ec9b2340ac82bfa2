package bus

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// A send whose copies are too many for one transaction makes them in several, each message with
// all its copies at once.
func TestSendInParts(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
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
			got := peekAll(t, s, sub.Subqueue(false))
			if len(got) != messages {
				t.Fatalf("%s has %d messages", sub.Name, len(got))
			}
			for i, m := range got {
				if m.Subject != fmt.Sprint("m", i) || m.EnqueuedSeq != seqs[i] {
					t.Errorf("%s has %s with the number %d as its message %d, which is %d", sub.Name, m.Subject, m.EnqueuedSeq, i, seqs[i])
				}
			}
		}
		err := s.DB.Read(t.Context(), func(c driver.Conn) error {
			return c.Prep("SELECT enqueued_at, subqueue % 4, count(*), count(DISTINCT message_id) FROM bodies GROUP BY 1, 2").Each(func(r driver.Row) error {
				if r.Int(2) > 2*rules.FullCopies+listeners || r.Int(2) != r.Int(3)*listeners {
					t.Errorf("there are %d copies of %d messages of one time", r.Int(2), r.Int(3))
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Messages whose sender does not make the copies become active by themselves, once. Later
// messages come after them, even if these make few copies.
func TestSendInPartsWithoutItsSender(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const messages = 40
		topic := putTopic(t, s, MessageQueue{Name: "t/topic"})
		subs := manySubscriptions(t, s, topic, 50)
		all := numbered(0, messages)
		judged, err := s.Bus.judge(t.Context(), topic.No, all, true)
		mustDo(t, err)
		stored, err := sendJudged(t.Context(), s.Bus, topic, all, 0, judged)
		if err != nil || !stored.pending {
			t.Fatal(stored, err)
		}
		fresh := subscribe(t, s, topic, "fresh")
		if count, err := s.Bus.Entities().TopicCounts(t.Context(), topic, entity.CountLimit); err != nil || count.Scheduled != messages {
			t.Errorf("%d messages wait (%v)", count.Scheduled, err)
		}
		if cancelled, err := s.Bus.CancelScheduled(t.Context(), topic, stored.seqs[0]); err != nil || cancelled {
			t.Errorf("a message was cancelled of which there may be copies (%v)", err)
		}
		if _, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
			return struct{}{}, t.Topics.Publish(topic.Name, func() (MessageContent, error) { return content("event", 1), nil })
		}); err != nil {
			t.Fatal(err)
		}
		untilEmpty(t, s, "SELECT count(*) FROM messages WHERE flow = 2")
		want := ""
		for i := range messages {
			want += fmt.Sprint("m", i, " ")
		}
		for _, sub := range append(subs, fresh) {
			if got := subjects(t, s, sub.Subqueue(false)); got != want+"event" {
				t.Fatalf("%s has %s", sub.Name, got)
			}
		}
	})
}

// subscribeManifold makes so many subscriptions that each get so many copies of every message, by
// rules with actions. It returns them in the order of their numbers, which is not that of their
// names.
func subscribeManifold(t *testing.T, s *stores, topic MessageQueue, n, copies int) (subs []MessageQueue) {
	t.Helper()
	var rules []Rule
	for i := range copies {
		rules = append(rules, Rule{Name: fmt.Sprint("r", i), Settings: forebay.RuleSettings{SQLFilter: "1=1", SQLAction: fmt.Sprint("SET copy = ", i)}})
	}
	for i := range n {
		sub := MessageQueue{Tenant: topic.Tenant, Name: entity.SubscriptionName(topic.Name, fmt.Sprint("s", n-i)), Lock: testLock, MaxDeliveries: 2}
		stored, _, err := s.Bus.PutSubscription(t.Context(), topic, sub, rules, 2000)
		mustDo(t, err)
		subs = append(subs, stored)
	}
	return subs
}

// wantManifold checks that each of the subscriptions has all copies of each of the messages, one
// message after the other.
func wantManifold(t *testing.T, s *stores, subs []MessageQueue, copies int, messages ...string) {
	t.Helper()
	for _, sub := range subs {
		got := peekAll(t, s, sub.Subqueue(false))
		if len(got) != copies*len(messages) {
			t.Fatalf("%s has %d copies, not %d of %d messages", sub.Name, len(got), copies, len(messages))
		}
		for i, m := range messages {
			seen := map[string]bool{}
			for _, one := range got[i*copies : (i+1)*copies] {
				if seen[string(one.Properties)] = true; one.Subject != m {
					t.Fatalf("%s has %s before all copies of %s", sub.Name, one.Subject, m)
				}
			}
			if len(seen) != copies {
				t.Errorf("%s has %d different copies of %s", sub.Name, len(seen), m)
			}
		}
	}
}

const (
	manySubs   = 13
	manyCopies = 100 // of each
)

// One message of which a topic makes many copies is stored in several transactions, each of
// bounded size, and what is shared is stored once.
func TestOneMessageInParts(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		topic := putTopic(t, s, MessageQueue{Name: "t/topic", DuplicateWindow: time.Hour})
		subs := subscribeManifold(t, s, topic, manySubs, manyCopies)
		large := content("large", 1)
		large.Body = make([]byte, 2*minSharedBytes)
		count := func(sql string) (n int64) {
			t.Helper()
			mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
				_, err := c.Prep(sql).One(func(r driver.Row) { n = r.Int(0) })
				return err
			}))
			return n
		}
		first := send(t, s, topic, large)
		if again := send(t, s, topic, large); again[0] != first[0] {
			t.Errorf("a duplicate has the number %d, not %d", again[0], first[0])
		}
		send(t, s, topic, content("second", 2))
		if n := count("SELECT max(n) FROM (SELECT count(*) AS n FROM bodies GROUP BY enqueued_at) x"); n == 0 || n > rules.BatchCopies+manyCopies {
			t.Errorf("a transaction has made %d copies", n)
		}
		wantManifold(t, s, subs, manyCopies, "large", "second")
		if bodies, waiting := count("SELECT count(*) FROM shared_bodies"), count("SELECT count(*) FROM messages WHERE flow = 2"); bodies != 1 || waiting != 0 {
			t.Errorf("there are %d shared bodies and %d messages that wait", bodies, waiting)
		}
		for _, sub := range subs {
			if _, err := s.Bus.DropMessageQueue(t.Context(), sub); err != nil {
				t.Fatal(err)
			}
		}
		mustDo(t, s.Bus.PurgeDropped(t.Context()))
		if bodies := count("SELECT count(*) FROM shared_bodies"); bodies != 0 {
			t.Errorf("%d shared bodies stayed", bodies)
		}
	})
}

// sendVariable makes this test binary a process that sends a message and stops after so many
// transactions: it holds a doomedSend as JSON.
const sendVariable = "FOREBAY_TEST_SEND"

type doomedSend struct {
	Where   db.Options
	Topic   string
	Commits int64
}

func init() {
	raw, ok := os.LookupEnv(sendVariable)
	if !ok {
		return
	}
	var d doomedSend
	err := json.Unmarshal([]byte(raw), &d)
	if err == nil {
		err = d.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, "the process that sends came to its end:", err)
	os.Exit(1)
}

func (d doomedSend) run(ctx context.Context) error {
	d.Where.Serve = true
	s, err := openStores(ctx, d.Where)
	if err != nil {
		return err
	}
	topic, found, err := s.Bus.MessageQueue(ctx, d.Topic)
	if err != nil || !found {
		return fmt.Errorf("there is no topic (%w)", err)
	}
	var commits atomic.Int64
	s.DB.OnCommit(func(c db.Commit) {
		if c.Operations > 0 && commits.Add(1) == d.Commits {
			fmt.Println("stopped")
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
	})
	_, err = s.Bus.Send(ctx, topic, []MessageContent{content("first", 1)})
	return err
}

// A process is killed while it makes the copies of a message. No copy is missing or made twice,
// not even if the sender repeats the send. Later messages come after it.
func TestKilledWhileHandingOut(t *testing.T) {
	t.Parallel()
	for kind, database := range dbtest.Databases {
		for _, commits := range []int64{1, 2, 3, 4} {
			t.Run(fmt.Sprint(kind, " after ", commits), func(t *testing.T) {
				t.Parallel()
				where := database(t)
				s := fixture.Serve(t, where)
				topic := putTopic(t, s, MessageQueue{Name: "t/topic", DuplicateWindow: time.Hour})
				subs := subscribeManifold(t, s, topic, manySubs, manyCopies)
				mustDo(t, s.DB.Close())

				raw, err := json.Marshal(doomedSend{where, topic.Name, commits})
				mustDo(t, err)
				self, err := os.Executable()
				mustDo(t, err)
				child := exec.Command(self)
				child.Env, child.Stderr = append(os.Environ(), sendVariable+"="+string(raw)), os.Stderr
				out, err := child.StdoutPipe()
				mustDo(t, err)
				_, err = child.StdinPipe()
				mustDo(t, err)
				mustDo(t, child.Start())
				bufio.NewScanner(out).Scan()
				mustDo(t, child.Process.Kill())
				if err := child.Wait(); err == nil || child.ProcessState.Exited() {
					t.Fatalf("the process was not killed: %v", err)
				}

				s = fixture.Serve(t, where)
				defer s.DB.Close()
				send(t, s, topic, content("first", 1)) // as its sender does, who had no answer
				send(t, s, topic, content("second", 2))
				untilEmpty(t, s, "SELECT count(*) FROM messages WHERE flow = 2")
				wantManifold(t, s, subs, manyCopies, "first", "second")
			})
		}
	}
}
