//go:build unix

package kills_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/internal/sleep"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// sdkPrograms returns a program for each SDK, compiled and installed.
func sdkPrograms(t *testing.T) []sdkProgram {
	t.Helper()
	modules := toolchain.NodeModules(t, sdkSources)
	script, err := os.ReadFile(filepath.Join(sdkSources, "kills.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(modules, filepath.Base(t.TempDir())+"-kills.mjs") // where it finds the modules
	if err := os.WriteFile(path, script, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	toolchain.Need(t, toolchain.JDK())
	folder, classes := filepath.Join(sdkSources, "java"), t.TempDir()
	jars := filepath.Join(toolchain.Installed(t, folder, "pom.xml", []string{"pom.xml"}, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"), "jars", "*")
	if out, err := exec.CommandContext(t.Context(), "javac", "-J-XX:TieredStopAtLevel=1", "-cp", jars, "-d", classes, filepath.Join(folder, "Kills.java")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return []sdkProgram{
		{"go", startGoProgram},
		command("js", toolchain.NodeFor(t, modules), path),
		command("java", "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", classes+string(os.PathListSeparator)+jars, "Kills"),
	}
}

// command is a program that says what happens on its standard output.
func command(name, program string, args ...string) sdkProgram {
	return sdkProgram{name, func(r *busRecord, connection string, plain, ordered int) func() {
		r.Helper()
		cmd := exec.Command(program, append(args, connection, name, fmt.Sprint(plain), fmt.Sprint(ordered), fmt.Sprint(busSessions))...)
		complaints := &servertest.Tail{}
		cmd.Stderr = complaints
		stdin, err := cmd.StdinPipe()
		if err != nil {
			r.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			r.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			r.Fatal(err)
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			for lines := bufio.NewScanner(stdout); lines.Scan(); {
				r.line(lines.Bytes())
			}
		}()
		end := sync.OnceValue(func() error {
			stdin.Close()
			<-read
			return cmd.Wait()
		})
		r.Cleanup(func() {
			if r.Failed() { // it may not end by itself
				_ = cmd.Process.Kill()
			}
			_ = end() // reported by stop
			if r.Failed() {
				r.Logf("standard error of %s:\n%s", name, complaints)
			}
		})
		return func() {
			if err := end(); err != nil {
				r.Errorf("%s: %v", name, err)
			}
		}
	}}
}

// goProgram does with the SDK for Go what the other programs do.
type goProgram struct {
	*busRecord
	ctx        context.Context
	connection string
}

func startGoProgram(r *busRecord, connection string, plain, ordered int) func() {
	ctx, cancel := context.WithCancel(context.Background())
	p := &goProgram{r, ctx, connection}
	var loops sync.WaitGroup
	loops.Go(func() { p.send("plain", plain, func(int) *string { return nil }) })
	loops.Go(func() {
		p.send("ordered", ordered, func(i int) *string { s := fmt.Sprint("s", i%busSessions); return &s })
	})
	loops.Go(p.receivePlain)
	loops.Go(p.receiveSessions)
	stop := func() { cancel(); loops.Wait() }
	r.Cleanup(stop)
	return stop
}

func (p *goProgram) client() *azservicebus.Client {
	c, err := azservicebus.NewClientFromConnectionString(p.connection, &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: 1, RetryDelay: 50 * time.Millisecond, MaxRetryDelay: 50 * time.Millisecond}})
	if err != nil {
		p.Error(err)
		return nil
	}
	p.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

const busPause = 50 * time.Millisecond

// send sends messages one after the other. What is not known to be accepted is sent again.
func (p *goProgram) send(queue string, count int, session func(int) *string) {
	s, err := p.client().NewSender(queue, nil)
	if err != nil {
		p.Error(err)
		return
	}
	for i := range count {
		id := fmt.Sprintf("go-%s-%d", queue, i)
		for {
			ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
			err := s.SendMessage(ctx, &azservicebus.Message{Body: []byte(id), MessageID: &id, SessionID: session(i)}, nil)
			cancel()
			if err == nil {
				break
			}
			if sleep.For(p.ctx, busPause) != nil {
				return
			}
		}
		p.say(busEvent{Kind: "sent", ID: id})
	}
	p.say(busEvent{Kind: "finished", ID: queue})
}

// goReceiver is a receiver of the SDK for Go, with a session or without.
type goReceiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
}

// receive receives and completes some messages in their order. It returns false after an error,
// and if nothing came: what follows in a session must not be completed then.
func (p *goProgram) receive(r goReceiver, most int, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(p.ctx, wait)
	messages, err := r.ReceiveMessages(ctx, most, nil)
	cancel()
	if err != nil {
		return false
	}
	for _, m := range messages {
		about := busEvent{Kind: "received", ID: m.MessageID, Seq: *m.SequenceNumber, Count: m.DeliveryCount - 1} // the others do not count this one
		if m.SessionID != nil {
			about.Session = *m.SessionID
		}
		if m.LockedUntil != nil {
			about.Locked = m.LockedUntil.UnixMilli()
		}
		p.say(about)
		if p.ctx.Err() != nil {
			return false
		}
		about.From = time.Now().UnixMilli()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 5*time.Second)
		err := r.CompleteMessage(ctx, m, nil)
		cancel()
		about.Kind, about.To = "completed", time.Now().UnixMilli()
		if err != nil {
			about.Kind = "tried"
		}
		p.say(about)
		if err != nil {
			return false
		}
	}
	return true
}

func (p *goProgram) receivePlain() {
	r, err := p.client().NewReceiverForQueue("plain", nil)
	if err != nil {
		p.Error(err)
		return
	}
	for p.ctx.Err() == nil {
		if !p.receive(r, 10, time.Second) {
			_ = sleep.For(p.ctx, busPause) // its error ends the loop
		}
	}
}

// receiveSessions receives one message at a time. The SDK returns what comes when nobody waits
// any more, and it may come back behind a later message then.
func (p *goProgram) receiveSessions() {
	c := p.client()
	for p.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
		r, err := c.AcceptNextSessionForQueue(ctx, "ordered", nil)
		cancel()
		if err != nil {
			_ = sleep.For(p.ctx, busPause) // its error ends the loop
			continue
		}
		for range 15 {
			if !p.receive(r, 1, 500*time.Millisecond) {
				break
			}
		}
		closing, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 5*time.Second)
		_ = r.Close(closing) // its connection may be gone
		cancel()
	}
}

// cutter passes connections on to server processes, and cuts each after a random number of
// bytes.
type cutter struct {
	listener net.Listener
	loops    sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	to     map[int]string // addresses of processes that run
	quiet  bool           // new connections are not cut
	open   map[net.Conn]bool
	passed int
	cut    int
}

func startCutter(t *testing.T, seed uint64) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, random: rand.New(rand.NewPCG(seed, 1)), to: map[int]string{}, open: map[net.Conn]bool{}}
	c.loops.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.loops.Go(func() { c.pass(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.mu.Lock()
		c.to = nil
		for conn := range c.open {
			conn.Close()
		}
		c.mu.Unlock()
		c.loops.Wait()
	})
	return c
}

// connection is a connection string of the emulator's kind.
func (c *cutter) connection() string {
	return "Endpoint=sb://" + c.listener.Addr().String() + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
}

// serve passes new connections on to a process at that address too; "": no longer.
func (c *cutter) serve(process int, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.to, process); address != "" {
		c.to[process] = address
	}
}

// calm lets new connections live.
func (c *cutter) calm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet = true
}

func (c *cutter) connections() int { c.mu.Lock(); defer c.mu.Unlock(); return c.passed }
func (c *cutter) cuts() int        { c.mu.Lock(); defer c.mu.Unlock(); return c.cut }

const (
	cutBytesLeast = 4 << 10
	cutBytesMost  = 40 << 10
)

// pass passes bytes on both ways until one side closes, or so many bytes have passed.
func (c *cutter) pass(client net.Conn) {
	defer client.Close()
	c.mu.Lock()
	address, budget := "", cutBytesLeast+c.random.Int64N(cutBytesMost-cutBytesLeast)
	if c.quiet {
		budget = 1 << 40
	}
	for _, address = range c.to { // any
		break
	}
	c.mu.Unlock()
	if address == "" {
		return
	}
	server, err := net.Dial("tcp", address)
	if err != nil {
		return // the process is gone
	}
	defer server.Close()
	c.mu.Lock()
	over := c.to == nil
	c.passed++
	c.open[client], c.open[server] = true, true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, client)
		delete(c.open, server)
	}()
	if over {
		return
	}
	var ways sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		if n, _ := io.Copy(to, io.LimitReader(from, budget)); n == budget { // an error ends it too
			c.mu.Lock()
			c.cut++
			c.mu.Unlock()
		}
	}
	ways.Go(func() { copyTo(server, client) })
	ways.Go(func() { copyTo(client, server) })
	ways.Wait()
}
