//go:build unix

package kills_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// The SDKs for Go, JavaScript and Java send to the same two queues and receive from them, while
// processes are killed and connections cut. Every message that was accepted is received and
// completed, none after it was completed, and those of a session in order. The engines have their
// turns: there are a JVM and a Node.js for each.
func TestServiceBusUnderKills(t *testing.T) {
	raced.Skip(t, raced.Processes)
	t.Parallel()
	programs := sdkPrograms(t)
	t.Run("sqlite", func(t *testing.T) {
		testServiceBusUnderKills(t, servertest.ProcessOptions{Database: servertest.DatabaseFile(t)}, 1, programs)
	})
	t.Run("postgresql", func(t *testing.T) {
		testServiceBusUnderKills(t, servertest.ProcessOptions{Database: dbtest.Postgres(t), Blob: t.TempDir()}, 2, programs)
	})
}

const (
	busSessions = 5
	busLock     = 3 * time.Second
	busPatience = 4 * time.Minute // for the whole of one engine, on a machine that is busy
)

func testServiceBusUnderKills(t *testing.T, o servertest.ProcessOptions, processes int, programs []sdkProgram) {
	plain, ordered, kills := servertest.Size(150, 60), servertest.Size(90, 30), servertest.Size(5, 3)
	seed := servertest.Seed(t)
	began, random := time.Now(), rand.New(rand.NewPCG(seed, 0))
	o.ServiceBus = server.ServiceBus{Plain: "127.0.0.1:0"}
	running := make([]*servertest.Process, processes)
	proxy := startCutter(t, seed)
	start := func(i int) *client.Client {
		running[i] = servertest.Launch(t, o)
		c, err := client.New(client.Options{BaseURL: running[i].MustListen(t)})
		if err != nil {
			t.Fatal(err)
		}
		proxy.serve(i, running[i].ServiceBus)
		return c
	}
	var c *client.Client
	for i := range running {
		c = start(i)
	}
	yes := true
	for name, sessions := range map[string]*bool{"plain": nil, "ordered": &yes} {
		settings := forebay.MessageQueueSettings{LockSeconds: busLock.Seconds(), MaxDeliveryCount: 2000, DetectsDuplicates: &yes, RequiresSession: sessions}
		if _, err := c.PutMessageQueue(t.Context(), name, settings); err != nil {
			t.Fatal(err)
		}
	}
	r := &busRecord{T: t, happened: make(chan struct{}, 1), messages: map[string]*busMessage{}, finished: len(programs) * 2, timeout: time.After(busPatience)}
	var stops []func()
	for _, p := range programs {
		stops = append(stops, p.start(r, proxy.connection(), plain, ordered))
	}
	// The server dies after random numbers of things that are known to have happened.
	total := 2 * len(programs) * (plain + ordered)
	moments := make([]int, kills)
	for i := range moments {
		moments[i] = total/20 + random.IntN(total*3/4)
	}
	slices.Sort(moments)
	for n, moment := range moments {
		r.await(fmt.Sprintf("%d things", moment), func() bool { return r.known() >= moment })
		i := n % processes
		t.Logf("%s: kill at %s", time.Since(began).Round(time.Millisecond), r.summary())
		proxy.serve(i, "")
		running[i].Kill()
		c = start(i)
	}
	proxy.calm()
	r.await("the end of sending", func() bool { return r.finished == 0 })
	t.Logf("%s: sent at %s", time.Since(began).Round(time.Millisecond), r.summary())
	for left := true; left; {
		left = false
		for _, name := range []string{"plain", "ordered"} {
			_, q, err := c.FindQueue(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			left = left || q.Active+q.Locked+q.Deferred+q.Scheduled > 0
			if q.DeadLetter > 0 {
				t.Fatalf("%s has %d dead letters", name, q.DeadLetter)
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-r.timeout:
			t.Fatalf("the queues are not empty: %s", r.summary())
		}
	}
	for _, stop := range stops {
		stop()
	}
	r.check(len(programs) * (plain + ordered))
	t.Logf("%s; %d kills, %d connections of which %d were cut; %s", r.summary(), kills, proxy.connections(), proxy.cuts(), time.Since(began).Round(time.Millisecond))
	for _, p := range running {
		p.Stop(t)
	}
	if processes == 1 {
		servertest.CheckIntegrity(t, o.Database)
	}
}

// busEvent is a thing that a program knows to have happened. Times are in milliseconds.
type busEvent struct {
	Kind    string `json:"kind"` // sent, finished, received, completed, tried
	ID      string `json:"id"`   // of the message; of what is finished, the queue
	Seq     int64  `json:"seq"`
	Session string `json:"session"`
	Count   uint32 `json:"count"`  // deliveries before this one
	Locked  int64  `json:"locked"` // until when it is
	From    int64  `json:"from"`   // when the program began to complete it
	To      int64  `json:"to"`     // when it knew that it had
}

// busMessage is what happened to one message.
type busMessage struct {
	sent       bool
	deliveries []busEvent
	completed  []busEvent
	tried      int // completions of which it is not known whether they were
}

// heldUntil is when the lock ends of the delivery that an event is about.
func (m *busMessage) heldUntil(e busEvent) (until int64) {
	for _, d := range m.deliveries {
		if d.Count == e.Count {
			until = max(until, d.Locked)
		}
	}
	return until
}

// busRecord has what happened to all messages.
type busRecord struct {
	*testing.T
	happened chan struct{}
	timeout  <-chan time.Time

	mu        sync.Mutex
	messages  map[string]*busMessage
	sent      int
	completed int
	delivered int
	tried     int
	finished  int // queues that programs still send to
}

// say adds an event.
func (r *busRecord) say(e busEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.messages[e.ID]
	if m == nil && e.Kind != "finished" {
		m = &busMessage{}
		r.messages[e.ID] = m
	}
	switch e.Kind {
	case "sent":
		m.sent = true
		r.sent++
	case "finished":
		r.finished--
	case "received":
		m.deliveries = append(m.deliveries, e)
		r.delivered++
	case "completed":
		if m.heldUntil(e) >= e.To {
			m.completed = append(m.completed, e)
			r.completed++
			break
		}
		// The SDK for Go tries again when the lock of a session is lost, and then takes the refused
		// settlement for done. So what was not known before the lock ended does not count.
		m.tried++
		r.tried++
	case "tried":
		m.tried++
		r.tried++
	default:
		r.Errorf("a program said %+v", e)
	}
	select {
	case r.happened <- struct{}{}:
	default:
	}
}

// line is say for a line of a program.
func (r *busRecord) line(line []byte) {
	var e busEvent
	if err := json.Unmarshal(line, &e); err != nil {
		r.Errorf("a program said %q: %v", line, err)
		return
	}
	r.say(e)
}

// known is how many messages are known to be accepted, and how many to be completed.
func (r *busRecord) known() int { return r.sent + r.completed }

// await waits until something is true of the record.
func (r *busRecord) await(what string, holds func() bool) {
	r.Helper()
	for {
		r.mu.Lock()
		ok := holds()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.happened:
		case <-r.timeout:
			r.Fatalf("waited in vain for %s: %s", what, r.summary())
		}
	}
}

func (r *busRecord) summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d sent, %d delivered, %d completed, %d perhaps completed", r.sent, r.delivered, r.completed, r.tried)
}

// check checks what happened to each of so many messages.
func (r *busRecord) check(want int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent != want || len(r.messages) != want {
		r.Errorf("%d messages were accepted, and %d are known, of %d", r.sent, len(r.messages), want)
	}
	sessions := map[string][]busEvent{}
	for id, m := range r.messages {
		if len(m.deliveries) == 0 || len(m.completed)+m.tried == 0 {
			r.Errorf("%s was accepted and is lost: %+v", id, m)
		}
		if len(m.completed) > 1 {
			r.Errorf("%s was completed more than once: %+v", id, m)
		}
		for _, d := range m.deliveries {
			if d.Seq != m.deliveries[0].Seq {
				r.Errorf("%s is in its queue twice: %+v", id, m)
			}
			if len(m.completed) == 0 {
				continue
			}
			if done := m.completed[0]; d.Count > done.Count || d.Session == "" && d.Locked-busLock.Milliseconds() > done.To {
				r.Errorf("%s was delivered after it was completed: %+v", id, m)
			}
		}
		if len(m.completed) > 0 && m.completed[0].Session != "" {
			sessions[m.completed[0].Session] = append(sessions[m.completed[0].Session], m.completed[0])
		}
	}
	if len(sessions) != busSessions {
		r.Errorf("messages of %d sessions were completed, not of %d", len(sessions), busSessions)
	}
	for name, list := range sessions {
		slices.SortFunc(list, func(a, b busEvent) int { return int(a.Seq - b.Seq) })
		for i, latest := 1, list[0]; i < len(list); i++ {
			if list[i].To < latest.From { // for certain before that one
				r.Errorf("session %s: number %d was completed before number %d", name, list[i].Seq, latest.Seq)
			}
			if list[i].From > latest.From {
				latest = list[i]
			}
		}
	}
}

// sdkProgram is a client program.
type sdkProgram struct {
	name string
	// start starts it; stop ends it, once what it is completing is completed.
	start func(r *busRecord, connection string, plain, ordered int) (stop func())
}

var sdkSources = filepath.Join("..", "..", "interop", "servicebus", "testdata", "servicebus")
