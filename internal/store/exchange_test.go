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

func TestNewsAsWords(t *testing.T) {
	n := &news{ready: map[int64]int64{4: 1000, -7: 2000}, later: map[int64]int64{4: 3000}, lines: map[int64]map[int64]bool{4: {85: true, 101: true}, 8: nil}, changed: []int64{1, 2}, cancelled: []int64{99}, queues: true, slots: true, webhooks: true, keys: true, missed: true}
	if got := decodeNews(strings.Join(n.encode(), "")); !reflect.DeepEqual(got, n) {
		t.Errorf("read %+v, told %+v", got, n)
	}
	if got := decodeNews("z1 w"); !got.missed || !got.webhooks {
		t.Errorf("of words that it does not know it made %+v", got)
	}
}

// Lines of more tenants than one payload has room for are all known when the subqueue is looked at.
func TestNewsOfManyLines(t *testing.T) {
	const subqueue, count = 4, maxNewsLines
	n := &news{}
	for no := range int64(count) {
		part := &news{ready: map[int64]int64{subqueue: 1e12}}
		part.addLine(subqueue, 1<<40+no)
		n.add(part)
	}
	w := &writer{lines: map[int64]*lines{subqueue: newLines()}, dueAt: map[int64]int64{}, share: func(*news) {}, conn: conn{driver: &postgresConn{}}}
	w.lines[subqueue].known = true
	for _, payload := range n.encode() {
		if known := len(w.lines[subqueue].of); w.dueAt[subqueue] > 0 && known < count {
			t.Errorf("the lane is due when %d lines are known", known)
		}
		w.hear(decodeNews(payload))
	}
	if known := len(w.lines[subqueue].of); known != count || w.dueAt[subqueue] != 1e12 || !w.lines[subqueue].known {
		t.Errorf("%d lines are known, the lane is due at %d", known, w.dueAt[subqueue])
	}
	// Of still more it is told that there are, so that they are looked for.
	n.addLine(subqueue, 1<<41)
	more := n.encode()
	if len(more) != 1 {
		t.Errorf("%d payloads", len(more))
	}
	if w.hear(decodeNews(more[0])); w.lines[subqueue].known {
		t.Error("all lines are known, it seems")
	}
}

// What is told after a commit is bounded, whatever has happened.
func TestNewsAreBounded(t *testing.T) {
	n := &news{}
	for i := range int64(20_000) {
		part := &news{ready: map[int64]int64{-i: 1e12}, changed: []int64{i}}
		part.addLine(i%2, i)
		n.add(part)
	}
	if payloads := n.encode(); len(payloads) > 20 || !n.missed {
		t.Errorf("%d payloads, missed %t", len(payloads), n.missed)
	}
}

// Who waits for messages of a session hears of them; of other sessions nothing is remembered.
func TestNewsOfSessions(t *testing.T) {
	const waited, other = -7, -8
	w := &writer{lines: map[int64]*lines{}, dueAt: map[int64]int64{}, parked: map[int64][]*claim{waited: {{}}}}
	w.hear(&news{ready: map[int64]int64{waited: 1e12, other: 1e12}})
	if want := map[int64]int64{waited: 1e12}; !reflect.DeepEqual(w.dueAt, want) || len(w.lines) > 0 {
		t.Errorf("due is %v, lines of %d lanes are known", w.dueAt, len(w.lines))
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
				defer stores[i].Close()
			}
			heard := make(chan struct{}, 100)
			stores[1].OnWebhooksChanged(func() { heard <- struct{}{} })
			// When it begins to listen it looks once anyway.
			for i := range 3 {
				w := Webhook{Tenant: 1, TenantName: "t", Name: fmt.Sprint("w", i), URL: "https://example.com/", Concurrency: 1, Secrets: []WebhookSecret{{Secret: "s"}}}
				if i == 0 {
					if w.Tenant, err = stores[0].EnsureTenant(t.Context(), "t"); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := stores[0].CreateWebhook(t.Context(), w, Audit{Action: "create-webhook"}); err != nil {
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
		if _, err := s.Submit(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		got, err := s.Claim(t.Context(), ClaimRequest{Subqueue: SubqueueOf(queue, SubqueueMain), Max: len(jobs), MaxBytes: 1 << 20, Lock: time.Minute, MaxDeliveries: 10})
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
		if err := s.Succeed(t.Context(), &got[1], AttemptRecord{Outcome: forebay.OutcomeSucceeded}, Output{Inline: []byte("1"), Size: 1}); err != nil {
			t.Fatal(err)
		}
		held, err := s.Renew(t.Context(), locks, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		renewed := 0
		err = s.read(t.Context(), func(c conn) error {
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
		if held, err := s.Renew(t.Context(), nil, time.Minute); err != nil || len(held) != 0 {
			t.Errorf("no locks: %v, %v", held, err)
		}
	})
}
