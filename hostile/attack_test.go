//go:build hostile

package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Attack is something that one party does while another works.
type Attack struct {
	Name   string
	Target TargetOptions
	// Postgres has it carried out on PostgreSQL as well, in the full form.
	Postgres bool
	// Prepare brings the target into the state that is attacked, and returns what Run has to know.
	Prepare func(*Target) map[string]string
	// Run attacks until ctx ends. It runs in a process of its own.
	Run func(ctx context.Context, s *Scene) error
	// MemoryMiB is what the server may reside in at most; 0: payloadMemory.
	MemoryMiB int
	// Floor is a tail that is no fault in the short form, however short the usual one. 0 is
	// noticeable. It is longer where the attack moves so much data that the disk alone takes as
	// long.
	Floor time.Duration
	// Reconnects lets the victim connect again, up to twice, after a request without any answer, as
	// package client does. A server without a free file descriptor may hang up before it knows the
	// client.
	Reconnects bool
	// Pace and Bytes are of the victim's submits, a second and of one input; 0: 60 and some.
	Pace, Bytes int
	// Window is how long one window of the short form is; 0: shortWindow.
	Window time.Duration
	// StopUnderAttack has the server stopped while the attack goes on.
	StopUnderAttack bool
}

const (
	shortWindow = 400 * time.Millisecond
	// baseMemory is what a server without large payloads may take, in MiB.
	baseMemory = 256
	// payloadMemory is baseMemory and, as server.TuneRuntime counts, four times limits.memory_bytes
	// with its default of 64 MiB, and a quarter more.
	payloadMemory = (baseMemory + 4*64) * 5 / 4
)

// Scene is what an attacker's process knows.
type Scene struct {
	Attack    string
	URL, GRPC string
	Keys      Keys
	Short     bool
	Given     map[string]string // by Prepare

	ready sync.Once
	mu    sync.Mutex
	done  attackReport
}

// attackReport counts an attacker's requests by their outcome, and the total length of the
// answers.
type attackReport struct {
	Did   map[string]int
	Bytes int64
}

// What came of requests without an answer.
const (
	failed     = "error"
	unanswered = "still waiting at the end"
)

// attackers are all attacks by their names, for the attacker's process.
var attackers = map[string]Attack{}

func register(attacks ...Attack) []Attack {
	for _, a := range attacks {
		attackers[a.Name] = a
	}
	return attacks
}

// Attacker is the party with the attacker's key, with connections of its own that it keeps.
func (s *Scene) Attacker() Party {
	return Party{URL: s.URL, Key: s.Keys.Attacker, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// Ready says that the attack is under way. Done does so as well.
func (s *Scene) Ready() { s.ready.Do(func() { fmt.Fprintln(os.Stdout, "ready") }) }

// Done counts something that was done, by what came of it.
func (s *Scene) Done(what string) {
	s.mu.Lock()
	s.done.Did[what]++
	s.mu.Unlock()
	s.Ready()
}

// answered counts an answer by its status.
func (s *Scene) answered(a Answer) {
	what := strconv.Itoa(a.Status)
	if a.Err != nil {
		if what = failed; errors.Is(a.Err, context.Canceled) {
			what = unanswered
		}
	}
	s.mu.Lock()
	s.done.Bytes += int64(len(a.Body))
	s.mu.Unlock()
	s.Done(what)
}

// Flood sends requests from so many goroutines, each one after the other, as fast as they can.
// After a refusal each waits a moment, because the machine serves others too.
func (s *Scene) Flood(ctx context.Context, at int, send func(ctx context.Context, i int) Answer) {
	var running sync.WaitGroup
	for i := range at {
		running.Go(func() {
			for n := i; ctx.Err() == nil; n += at {
				a := send(ctx, n)
				s.answered(a)
				if a.Err != nil || a.Status == http.StatusServiceUnavailable {
					pause(ctx, 20*time.Millisecond)
				}
			}
		})
	}
	running.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// attackerVariable makes this test binary an attacker: it holds a Scene as JSON.
const attackerVariable = "FOREBAY_HOSTILE_ATTACKER"

// runAttacker attacks until standard input ends, and then says what it did.
func runAttacker(raw string) int {
	s := &Scene{done: attackReport{Did: map[string]int{}}}
	if err := json.Unmarshal([]byte(raw), s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := attackers[s.Attack].Run(ctx, s); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(s.done); err != nil {
		return 1
	}
	return 0
}

// attackerProcess is a running attack.
type attackerProcess struct {
	begun time.Time
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// begin starts the attack in a process at the lowest priority and waits until it is under way.
func (a Attack) begin(t testing.TB, s *Scene) *attackerProcess {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &attackerProcess{begun: time.Now(), cmd: exec.Command("nice", "-n", "19", self)}
	p.cmd.Env = append(os.Environ(), attackerVariable+"="+string(raw), "GOMAXPROCS=1")
	p.cmd.Stderr = t.Output()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		_ = p.cmd.Wait()
		t.Fatalf("the attack does not begin: %q, %v", line, err)
	}
	return p
}

// end ends the attack and returns what it did, and in which time.
func (p *attackerProcess) end(t testing.TB) (did attackReport, took time.Duration) {
	t.Helper()
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	p.stdin.Close()
	took = time.Since(p.begun)
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &did)
	}
	if waited := p.cmd.Wait(); err != nil || waited != nil {
		t.Errorf("the attacker did not end as it should: %v, %v", err, waited)
	}
	return did, took
}

// conduct carries out the attack and judges what the victim noticed. If only a tail exceeds its
// limit it runs again with twice as many windows, and only that result counts.
func (a Attack) conduct(t *testing.T, postgres bool) {
	rounds := size(4, 2)
	m := a.measure(t, postgres, rounds)
	if m.onlySlow() {
		t.Logf("repeated once, for the first time gave: %s", m.Slow)
		m = a.measure(t, postgres, 2*rounds)
	}
	m.report(t)
}

// measure attacks one target and has a second one beside it that nobody attacks, so that an
// attack's remains do not pass for usual. Windows take turns. In one kind nothing is attacked. In
// another the target is. In the third a sink is, in the same way and as often, while the victim
// works at the second target.
func (a Attack) measure(t *testing.T, postgres bool, rounds int) *Measurement {
	o := a.Target
	o.Postgres = postgres
	quiet, target := Start(t, o), Start(t, o)
	m := &Measurement{Attack: a.Name, Postgres: postgres, Limit: a.MemoryMiB, Floor: a.Floor, Lax: testing.Short(), Did: map[string]int{}}
	if m.Limit == 0 {
		m.Limit = payloadMemory
	}
	pace := a.Pace
	if pace == 0 {
		pace = 60
	}
	undisturbed, victim := newVictim(quiet, pace, a.Bytes), newVictim(target, pace, a.Bytes)
	victim.reconnects = a.Reconnects
	length := size(2*time.Second, max(a.Window, shortWindow))
	for _, v := range []*Victim{undisturbed, victim} {
		v.window(t.Context(), length/4) // plans and caches are warm then
	}
	var given map[string]string
	if a.Prepare != nil {
		given = a.Prepare(target)
	}
	scene := &Scene{Attack: a.Name, URL: target.URL, GRPC: target.GRPC, Keys: target.Keys, Short: testing.Short(), Given: given}
	var came traffic
	for range rounds {
		m.Busy += contention() / float64(rounds)
		m.Quiet.add(undisturbed.window(t.Context(), length))
		attacker := a.begin(t, scene)
		m.Attacked.add(victim.window(t.Context(), length))
		m.Peak = max(m.Peak, target.PeakMemory())
		did, took := attacker.end(t)
		for what, n := range did.Did {
			m.Did[what] += n
		}
		if came.add(did, took); !target.Alive() {
			break
		}
		m.Control.add(a.control(t, scene, came, func() Waits { return undisturbed.window(t.Context(), length) }))
	}
	m.Faults = append(m.Faults, victim.check(t.Context())...)
	if a.StopUnderAttack && target.Alive() {
		attacker := a.begin(t, scene)
		t.Logf("SIGTERM took %s under attack", target.Stop(t).Round(time.Millisecond))
		attacker.end(t)
	}
	m.judge()
	target.Stop(t)
	quiet.Stop(t)
	return m
}

// control has the attack meet a sink for as long as a window takes.
func (a Attack) control(t *testing.T, scene *Scene, like traffic, window func() Waits) Waits {
	t.Helper()
	bare := &Scene{Attack: scene.Attack, Keys: scene.Keys, Short: scene.Short, Given: scene.Given}
	var stop func()
	bare.URL, bare.GRPC, stop = startSink(t, like)
	defer stop()
	attacker := a.begin(t, bare)
	defer attacker.end(t)
	return window()
}

// runAttacks carries out attacks one after the other, for they are measured.
func runAttacks(t *testing.T, attacks []Attack) {
	for _, a := range attacks {
		t.Run(a.Name, func(t *testing.T) { a.conduct(t, false) })
		if a.Postgres && !testing.Short() {
			t.Run(a.Name+" on PostgreSQL", func(t *testing.T) { a.conduct(t, true) })
		}
	}
}

// TestAttacksAreDistinct keeps two attacks from having one name, by which the process finds them.
func TestAttacksAreDistinct(t *testing.T) {
	names := slices.Concat(floods, payloads, connections, publishes, reads)
	if len(attackers) != len(names) {
		t.Errorf("%d attacks have %d names", len(names), len(attackers))
	}
}
