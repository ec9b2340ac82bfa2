package store

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/pgtest"
)

func TestNotificationsAsWords(t *testing.T) {
	n := &notification{lost: true}
	for _, w := range []word{{wordReady, 4, 0}, {wordLine, 4, 85}, {wordLine, 4, 101}, {wordChanged, 1, 0}, {wordCancelled, 99, 0}, {wordSettings, 0, 0}} {
		n.add(w.kind, w.a, w.b, 1000+w.a)
	}
	n.addMany(wordLater)
	if got := decodeNotification(strings.Join(n.encode(), "")); !reflect.DeepEqual(got, n) {
		t.Errorf("read %+v, told %+v", got, n)
	}
	if got := decodeNotification("z1 w0:0:0:"); !got.lost || !got.has(wordWebhooks) {
		t.Errorf("of words that it does not know it made %+v", got)
	}
	n.add(wordDeadline, 0, 0, 7)
	if got := decodeNotification(strings.Join(n.encode(), "")); got.has(wordDeadline) {
		t.Error("other processes hear what is for the writers of this one")
	}
	n.add(wordReady, 4, 0, 2000)
	n.add(wordReady, 4, 0, 500)
	if at := n.words[word{wordReady, 4, 0}]; at != 500 {
		t.Errorf("the earliest time is %d", at)
	}
}

// Lines of more tenants than one payload has room for are all known when the subqueue is looked at.
func TestNotificationsOfManyLines(t *testing.T) {
	const subqueue, count = 4, maxWordsOfKind
	n := &notification{}
	for no := range int64(count) {
		n.add(wordReady, subqueue, 0, 1e12)
		n.add(wordLine, subqueue, 1<<40+no, 0)
	}
	p := newTestPart()
	p.seen[subqueue], p.linesOf(subqueue).known = true, true
	hear := func(n *notification) {
		p.queue.notified(n)
		p.notified(n)
	}
	for _, payload := range n.encode() {
		if known := len(p.lines[subqueue].of); p.dueAt[subqueue] > 0 && known < count {
			t.Errorf("the subqueue is due when %d lines are known", known)
		}
		hear(decodeNotification(payload))
	}
	if known := len(p.lines[subqueue].of); known != count || p.dueAt[subqueue] != 1e12 || !p.lines[subqueue].known {
		t.Errorf("%d lines are known, the subqueue is due at %d", known, p.dueAt[subqueue])
	}
	// Of still more it is told that there are, so that they are looked for.
	n.add(wordLine, subqueue, 1<<41, 0)
	more := n.encode()
	if len(more) != 1 {
		t.Errorf("%d payloads", len(more))
	}
	if hear(decodeNotification(more[0])); p.lines[subqueue].known {
		t.Error("all lines are known, it seems")
	}
}

// What is told after a commit is bounded, whatever has happened.
func TestNotificationsAreBounded(t *testing.T) {
	n := &notification{}
	for i := range int64(20_000) {
		part := &notification{}
		part.add(wordReady, -i, 0, 1e12)
		part.add(wordChanged, i, 0, 0)
		part.add(wordLine, i%2, i, 0)
		n.addAll(part)
	}
	if payloads := n.encode(); len(payloads) > 20 || !n.many[wordReady] || !n.many[wordLine] || !n.many[wordChanged] {
		t.Errorf("%d payloads, too many of %v", len(payloads), n.many)
	}
}

// Who waits for messages of a session hears of them; of other sessions nothing is remembered.
func TestNotificationsOfSessions(t *testing.T) {
	const waited, other = -7, -8
	queue := &queuePart{writer: &writer{}}
	p := newBusPart(queue.writer, queue, nil)
	p.parked[waited] = []*receiver{{}}
	n := &notification{}
	n.add(wordReady, waited, 0, 1e12)
	n.add(wordReady, other, 0, 1e12)
	queue.notified(n)
	if want := map[Subqueue]int64{waited: 1e12}; !reflect.DeepEqual(p.dueAt, want) || len(p.seen) > 0 {
		t.Errorf("due is %v, %d subqueues are remembered", p.dueAt, len(p.seen))
	}
}

func TestChannels(t *testing.T) {
	long := strings.Repeat("s", 60)
	seen := map[string]string{}
	for _, path := range []string{"forebay", "skewed,pg_catalog", long, long + "t", `"Name ""quoted"""`, `"Name \quoted"`} {
		channel := channelOf(path)
		if other, taken := seen[channel]; taken || len(channel) > maxChannelBytes || strings.ContainsAny(channel, `"\`) {
			t.Errorf("%q has the channel %q, as has %q", path, channel, other)
		}
		seen[channel] = path
	}
	if channelOf("forebay") != "forebay_forebay" {
		t.Error("processes of the version before would not be heard")
	}
}

// Another process hears of a changed webhook at once, whatever its tables' schema is called.
func TestWebhookChangesAreTold(t *testing.T) {
	t.Parallel()
	for name, schema := range map[string]string{"plain": "hooks", "long": strings.Repeat("x", 60), "quoted": `"Hooks"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(pgtest.Database(t))
			if err != nil {
				t.Fatal(err)
			}
			pg, err := pgconn.Connect(t.Context(), u.String())
			if err != nil {
				t.Fatal(err)
			}
			defer pg.Close(background)
			if _, err := pg.Exec(t.Context(), "CREATE SCHEMA "+schema).ReadAll(); err != nil {
				t.Fatal(err)
			}
			query := u.Query()
			query.Set("search_path", schema)
			u.RawQuery = query.Encode()
			var stores [2]*Store
			for i := range stores {
				if stores[i], err = Open(t.Context(), Options{URL: u.String()}); err != nil {
					t.Fatal(err)
				}
				defer stores[i].DB.Close()
			}
			heard := make(chan struct{}, 100)
			stores[1].Webhooks.OnWebhooksChanged(func() { heard <- struct{}{} })
			// When it begins to listen it looks once anyway.
			for i := range 3 {
				w := Webhook{Tenant: 1, TenantName: "t", Name: fmt.Sprint("w", i), URL: "https://example.com/", Concurrency: 1, Secrets: []WebhookSecret{{Secret: "s"}}}
				if i == 0 {
					if w.Tenant, err = stores[0].Queues.EnsureTenant(t.Context(), "t"); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := stores[0].Webhooks.CreateWebhook(t.Context(), w, Audit{Action: "create-webhook"}); err != nil {
					t.Fatal(err)
				}
				select {
				case <-heard:
				case <-time.After(20 * time.Second):
					t.Fatalf("nothing was heard of change %d", i+1)
				}
			}
		})
	}
}

// Of many locks those that hold are renewed, on either engine, and the others are told apart.
func TestRenewMany(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		queue := queueOf(t, s, "q")
		var jobs []NewJob
		for i := range 20 {
			jobs = append(jobs, NewJob{ID: fmt.Sprint("job_", i), Tenant: 1, Queue: queue, Task: "echo", MaxAttempts: 5})
		}
		if _, err := s.Jobs.Submit(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		got, err := s.Jobs.Claim(t.Context(), ClaimRequest{Subqueue: SubqueueOf(queue, SubqueueMain), Max: len(jobs), MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 10})
		if err != nil || len(got) != len(jobs) {
			t.Fatalf("%d deliveries: %v", len(got), err)
		}
		var locks []Lock
		for i := range got {
			locks = append(locks, got[i].Lock)
			if i%3 == 0 {
				locks[i].Token++
			}
		}
		if err := s.Jobs.Succeed(t.Context(), &got[1], AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
			t.Fatal(err)
		}
		held, err := s.Jobs.Renew(t.Context(), locks, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		renewed := 0
		err = s.DB.read(t.Context(), func(c conn) error {
			_, err := c.prep("SELECT count(*) FROM messages WHERE visible > ?").int(c.now() + 5*60_000).one(func(r row) { renewed = int(r.int(0)) })
			return err
		})
		expected := 0
		for i, h := range held {
			if want := i%3 != 0 && i != 1; h != want {
				t.Errorf("lock %d: held %t", i, h)
			} else if want {
				expected++
			}
		}
		if err != nil || renewed != expected {
			t.Errorf("%d locks were extended, expected %d: %v", renewed, expected, err)
		}
		if held, err := s.Jobs.Renew(t.Context(), nil, time.Minute); err != nil || len(held) != 0 {
			t.Errorf("no locks: %v, %v", held, err)
		}
	})
}
