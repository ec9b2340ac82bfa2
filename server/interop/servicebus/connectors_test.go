package servicebus_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// azureOptions are those of a server whose connectors go to the service at that connection string.
func azureOptions(connection, database string) server.Options {
	return server.Options{
		Database: database, Listen: "127.0.0.1:0", ShutdownTimeout: time.Second,
		AzureServiceBus: server.AzureServiceBus{Connections: map[string]server.AzureConnection{"main": {ConnectionString: forebay.Secret(connection)}}},
	}
}

// startConnected starts a server with connectors.
func startConnected(t *testing.T, o server.Options) *client.Client {
	t.Helper()
	s := servertest.UntilEnd(t, o)
	c, err := client.New(client.Options{BaseURL: "http://" + s.Addr(t.Context()).String()})
	return must(t, c, err)
}

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit, tick := time.NewTimer(2*time.Minute), time.NewTicker(20*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("after two minutes still not: %s", what)
		}
	}
}

// isTaken reports whether a queue of the service holds nothing but dead letters.
func isTaken(t *testing.T, b goBus, queue string) bool {
	_, q, err := b.FindQueue(t.Context(), queue)
	return err == nil && q.Active+q.Locked+q.Deferred+q.Scheduled == 0
}

// jobsOf returns all jobs of a server, the oldest first.
func jobsOf(t *testing.T, c *client.Client) (list []forebay.Job) {
	t.Helper()
	for job, err := range c.List(t.Context(), forebay.JobFilter{}) {
		must(t, job, err)
		list = append(list, job)
	}
	slices.Reverse(list)
	return list
}

func chatInput(n int) []byte {
	return fmt.Appendf(nil, `{"messages":[{"role":"user","content":"question %d"}]}`, n)
}

func chatMessage(n int) *azservicebus.Message {
	return &azservicebus.Message{MessageID: ptr(fmt.Sprintf("m%d", n)), ContentType: ptr("application/json"), CorrelationID: ptr(fmt.Sprintf("c%d", n)), Body: chatInput(n),
		ApplicationProperties: map[string]any{"n": int64(n)}}
}

// azureSuite is what connectors do with the service, whichever database they store in.
var azureSuite = map[string]func(t *testing.T, database string){
	"Source":                         testAzureSource,
	"Source of sessions":             testAzureSourceSessions,
	"Source pauses":                  testAzureSourcePauses,
	"Source survives kills and cuts": testAzureSourceSurvivesKillsAndCuts,
	"Sink":                           testAzureSink,
}

func TestAzureConnectors(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		for name, test := range azureSuite {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, database)
			})
		}
	})
}

// Messages of a queue there become jobs here, each one. What can be no job is dead-lettered there
// with the reason.
func testAzureSource(t *testing.T, database string) {
	b := startGoBus(t, nil)
	b.queue(t, "orders", forebay.MessageQueueSettings{})
	for n := range 30 {
		b.send("orders", chatMessage(n))
	}
	b.send("orders", chatMessage(7), &azservicebus.Message{MessageID: ptr("bad"), ContentType: ptr("application/json"), Body: []byte(`{"messages":`)})
	o := azureOptions(b.connection, newDatabase(t, database))
	o.AzureServiceBus.Sources = map[string]server.AzureSource{"orders": {Task: "chat"}}
	c := startConnected(t, o)
	until(t, "the queue is taken", func() bool { return isTaken(t, b, "orders") })
	got := map[string]int{}
	for _, job := range jobsOf(t, c) {
		got[job.CorrelationID+" "+job.Metadata["n"]]++
	}
	for n := range 30 {
		if got[fmt.Sprintf("c%d %d", n, n)] != 1 {
			t.Errorf("message %d made %d jobs", n, got[fmt.Sprintf("c%d %d", n, n)])
		}
	}
	if len(got) != 30 {
		t.Errorf("jobs of %d messages", len(got))
	}
	dead := b.receive(b.receiver("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}), 1)[0]
	if dead.MessageID != "bad" || *dead.DeadLetterReason != string(forebay.CodeInvalidJSON) || *dead.DeadLetterErrorDescription == "" {
		t.Errorf("%s: %s %s", dead.MessageID, *dead.DeadLetterReason, *dead.DeadLetterErrorDescription)
	}
	for _, check := range server.CheckAzureServiceBus(t.Context(), o) {
		if !check.OK {
			t.Errorf("%s: %s", check.Name, check.Detail)
		}
	}
	o.AzureServiceBus.Sources = map[string]server.AzureSource{"none": {Task: "chat"}}
	if checks := server.CheckAzureServiceBus(t.Context(), o); len(checks) != 1 || checks[0].OK || strings.Contains(checks[0].Detail, "SAS_KEY_VALUE") {
		t.Errorf("a queue that does not exist: %+v", checks)
	}
}

// Jobs of a session come in the order of its messages.
func testAzureSourceSessions(t *testing.T, database string) {
	b := startGoBus(t, nil)
	b.queue(t, "talks", forebay.MessageQueueSettings{RequiresSession: new(true)})
	const sessions, each = 5, 12
	for n := range each {
		for s := range sessions {
			m := chatMessage(n*sessions + s)
			m.SessionID = ptr(fmt.Sprintf("s%d", s))
			b.send("talks", m)
		}
	}
	o := azureOptions(b.connection, newDatabase(t, database))
	o.AzureServiceBus.Sources = map[string]server.AzureSource{"talks": {Task: "chat", Sessions: 2, Messages: 4}}
	c := startConnected(t, o)
	until(t, "the queue is taken", func() bool { return isTaken(t, b, "talks") })
	last, total := map[string]int{}, 0
	for _, job := range jobsOf(t, c) {
		var n int
		if _, err := fmt.Sscan(job.Metadata["n"], &n); err != nil {
			t.Fatal(err)
		}
		if before, seen := last[*job.SessionID]; seen && n <= before {
			t.Errorf("session %s has %d after %d", *job.SessionID, n, before)
		}
		last[*job.SessionID] = n
		total++
	}
	if total != sessions*each {
		t.Errorf("%d jobs", total)
	}
}

// A paused queue of jobs stops receiving; messages stay there until it goes on.
func testAzureSourcePauses(t *testing.T, database string) {
	b := startGoBus(t, nil)
	b.queue(t, "orders", forebay.MessageQueueSettings{})
	o := azureOptions(b.connection, newDatabase(t, database))
	p := startAzureProcess(t, azureProcess{Connection: b.connection, Database: o.Database, Source: ""})
	if err := p.PauseQueue(t.Context(), forebay.DefaultQueue); err != nil {
		t.Fatal(err)
	}
	p.kill()
	b.send("orders", chatMessage(1))
	o.AzureServiceBus.Sources = map[string]server.AzureSource{"orders": {Task: "chat"}}
	said := &watched{want: "receives nothing", seen: make(chan struct{})}
	o.Logger = slog.New(slog.NewTextHandler(said, nil))
	c := startConnected(t, o)
	select {
	case <-said.seen:
	case <-within(t).Done():
		t.Fatal("the source has not noticed the pause")
	}
	if _, q, err := b.FindQueue(t.Context(), "orders"); err != nil || q.Active != 1 || len(jobsOf(t, c)) != 0 {
		t.Errorf("paused: %+v, %v", q, err)
	}
	if err := c.ResumeQueue(t.Context(), forebay.DefaultQueue); err != nil {
		t.Fatal(err)
	}
	until(t, "the queue is taken", func() bool { return isTaken(t, b, "orders") && len(jobsOf(t, c)) == 1 })
}

// watched is a log in which somebody waits for a text.
type watched struct {
	want string
	seen chan struct{}
	once sync.Once
}

func (w *watched) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(b), nil
}

// A process that is killed after its jobs are on disk, and before it completed their messages,
// loses none and makes none twice. Neither does a service that cannot be reached for a while.
func testAzureSourceSurvivesKillsAndCuts(t *testing.T, database string) {
	b := startGoBus(t, nil)
	const queue, each, kills = "orders", 8, 3
	b.queue(t, queue, forebay.MessageQueueSettings{LockSeconds: 5, MaxDeliveryCount: 20})
	way := startProxy(t, b.address)
	connection := strings.Replace(b.connection, b.address, way.address, 1)
	child := azureProcess{Connection: connection, Database: newDatabase(t, database), Source: queue}
	for n := range kills {
		way.mute(true) // the service hears nothing once it has sent messages
		for i := range each {
			b.send(queue, chatMessage(n*each+i))
		}
		p := startAzureProcess(t, child)
		had := max(0, n*each)
		until(t, "jobs are on disk", func() bool { return len(jobsOf(t, p.Client)) > had })
		p.kill()
		way.cut()
		if _, q, err := b.FindQueue(t.Context(), queue); err != nil || q.Active+q.Locked == 0 {
			t.Fatalf("the process completed its messages before it was killed: %+v, %v", q, err)
		}
		way.mute(false)
		p = startAzureProcess(t, child)
		until(t, "the queue is taken", func() bool { return isTaken(t, b, queue) })
		way.cut() // and back at once
		b.send(queue, &azservicebus.Message{MessageID: ptr("again"), ContentType: ptr("application/json"), Body: chatInput(0), ApplicationProperties: map[string]any{"n": "again"}})
		until(t, "the queue is taken after a cut", func() bool { return isTaken(t, b, queue) })
		count := map[string]int{}
		for _, job := range jobsOf(t, p.Client) {
			count[job.Metadata["n"]]++
		}
		for id, made := range count {
			if made != 1 {
				t.Errorf("message %s made %d jobs", id, made)
			}
		}
		if len(count) != (n+1)*each+1 {
			t.Errorf("after kill %d there are jobs of %d messages", n+1, len(count))
		}
		p.kill()
		way.cut()
	}
	if _, q, err := b.FindQueue(t.Context(), queue); err != nil || q.DeadLetter != 0 {
		t.Errorf("dead letters: %+v, %v", q, err)
	}
}

// azureProcess is a server process with a source.
type azureProcess struct{ Connection, Database, Source string }

const azureVariable = "FOREBAY_TEST_AZURE"

// runAzureProcess is the main function of such a process. It prints its address.
func runAzureProcess(raw string) int {
	var p azureProcess
	if err := json.Unmarshal([]byte(raw), &p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	o := azureOptions(p.Connection, p.Database)
	o.Log = server.Log{Level: "warn"}
	if p.Source != "" {
		o.AzureServiceBus.Sources = map[string]server.AzureSource{p.Source: {Task: "chat"}}
	}
	s, err := server.New(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { fmt.Fprintf(os.Stdout, "http://%s\n", s.Addr(context.Background())) }()
	if err := s.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startedProcess is a running process.
type startedProcess struct {
	*client.Client
	kill func()
}

func startAzureProcess(t *testing.T, p azureProcess) startedProcess {
	t.Helper()
	raw, err := json.Marshal(p)
	must(t, raw, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), azureVariable+"="+string(raw)), t.Output()
	out, err := cmd.StdoutPipe()
	must(t, out, err)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	base, err := bufio.NewReader(out).ReadString('\n')
	must(t, base, err)
	c, err := client.New(client.Options{BaseURL: strings.TrimSpace(base)})
	return startedProcess{must(t, c, err), kill}
}

// proxy is a way to the service that can be cut, and on which the service can become deaf.
type proxy struct {
	address string
	muting  atomic.Bool
	mu      sync.Mutex
	conns   map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, l, err)
	p := &proxy{address: l.Addr().String(), conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			p.mu.Lock()
			p.conns[near], p.conns[far] = true, true
			p.mu.Unlock()
			var deaf atomic.Bool
			running.Go(func() { p.carry(near, far, &deaf, false) })
			running.Go(func() { p.carry(far, near, &deaf, true) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		running.Wait()
	})
	return p
}

func (p *proxy) mute(on bool) { p.muting.Store(on) }

// cut ends all connections. New ones are taken.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// carry copies bytes. Before the service's first message is passed on, the service becomes deaf.
func (p *proxy) carry(from, to net.Conn, deaf *atomic.Bool, fromService bool) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if fromService && p.muting.Load() && bytes.Contains(buf[:n], []byte("question")) {
			deaf.Store(true)
		}
		if !fromService && deaf.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// received receives a sink's messages until it has so many.
func received(t *testing.T, b goBus, queue string, n int) []*azservicebus.ReceivedMessage {
	t.Helper()
	r := b.receiver(queue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	defer func() { _ = r.Close(context.Background()) }()
	return b.receive(r, n)
}

// Events of jobs reach the queue there, those of a job in order; results too.
func testAzureSink(t *testing.T, database string) {
	b := startGoBus(t, nil)
	b.queue(t, "events", forebay.MessageQueueSettings{})
	b.queue(t, "results", forebay.MessageQueueSettings{RequiresSession: new(true)})
	o := azureOptions(b.connection, newDatabase(t, database))
	o.AzureServiceBus.Sinks = map[string]server.AzureSink{
		"events": {}, "results": {Events: []forebay.EventType{forebay.EventSucceeded}, Results: true, Sessions: true},
	}
	c := startConnected(t, o)
	const jobs = 20
	for n := range jobs {
		_, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: "chat", Input: chatInput(n)})
		if err != nil {
			t.Fatal(err)
		}
	}
	last := map[string]int64{}
	ids := map[string]bool{}
	for succeeded := 0; succeeded < jobs; {
		for _, m := range received(t, b, "events", 1) {
			var e forebay.Event
			if err := json.Unmarshal(m.Body, &e); err != nil {
				t.Fatal(err)
			}
			if e.Number <= last[e.JobID] && !ids[m.MessageID] || m.MessageID != fmt.Sprintf("%s-%d", e.JobID, e.Number) || *m.Subject != string(e.Type) {
				t.Errorf("event %d of %s after %d, as %s %s", e.Number, e.JobID, last[e.JobID], m.MessageID, *m.Subject)
			}
			if _, there := m.ApplicationProperties["RuleName"]; there {
				t.Error("the rule's name was sent")
			}
			last[e.JobID] = e.Number
			if ids[m.MessageID] = true; e.Type == forebay.EventSucceeded {
				succeeded++
			}
		}
	}
	session, err := b.AcceptNextSessionForQueue(within(t), "results", nil)
	must(t, session, err)
	m := b.receive(session, 1)[0]
	r, err := c.Result(t.Context(), session.SessionID())
	must(t, r, err)
	result, err := io.ReadAll(r)
	must(t, result, err)
	if want := string(result); string(m.Body) != want || m.ApplicationProperties["job_id"] != session.SessionID() {
		t.Errorf("result %s, want %s", m.Body, want)
	}
}
