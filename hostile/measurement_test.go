//go:build hostile

package hostile

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// strictFloor is a tail that is no fault, however short the usual one. Neither a person nor a
	// service's timeout notices it. The network between two data centres adds as much, and a model's
	// call takes many times as long.
	strictFloor = 25 * time.Millisecond
	// noticeable is the lax floor of the short form, which has few samples and runs beside other
	// work. In the full form it is the floor of whole pieces of work.
	noticeable = 250 * time.Millisecond
	// maxContention bounds by how much a busy machine may raise that.
	maxContention = 6
)

// contention is how many times its processor time some work takes on this machine now, 1 on an
// idle one. A server that an attack keeps busy waits that much longer for the processor. One that
// nobody attacks hardly does.
func contention() float64 {
	const work = 40 * time.Millisecond
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun, used := time.Now(), threadTime()
	for threadTime()-used < work {
	}
	return min(max(float64(time.Since(begun))/float64(work), 1), maxContention)
}

// threadTime is the processor time of this thread so far.
func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		panic(err) // cannot fail for the thread itself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Measurement is what others noticed of an attack.
type Measurement struct {
	Attack   string
	Postgres bool
	Quiet    Waits // nothing is attacked
	Control  Waits // the same traffic goes to a sink
	Attacked Waits
	Peak     int           // resident memory of the server in MiB; 0: not measured
	Limit    int           // of Peak
	Busy     float64       // the machine, by contention
	Floor    time.Duration // of tails in the short form; 0: noticeable
	Lax      bool          // judged as the short form is
	Did      map[string]int
	Faults   []string // what is not as it should be, but for slow
	Slow     []string // tails over their limit
}

// tolerated is the longest tail beside a usual one, on a machine that busy.
func tolerated(usual, floor time.Duration, busy float64) time.Duration {
	return max(2*usual, time.Duration(float64(floor)*max(busy, 1)))
}

// judge adds the faults that the figures show.
func (m *Measurement) judge() {
	m.compare("submit", m.Quiet.Submit, m.Control.Submit, m.Attacked.Submit)
	m.compare("start", m.Quiet.Start, m.Control.Start, m.Attacked.Start)
	if m.Peak > m.Limit {
		m.Faults = append(m.Faults, fmt.Sprintf("the server resided in up to %d MiB; its limit is %d MiB", m.Peak, m.Limit))
	}
	if len(m.Did) == 0 {
		m.Faults = append(m.Faults, "the attack did nothing")
	}
}

// compare judges one tail.
func (m *Measurement) compare(what string, quiet, control, attacked []time.Duration) {
	tail := p99(attacked)
	if limit := tolerated(usual(quiet, control), m.floor(), m.Busy); tail > limit {
		m.Slow = append(m.Slow, fmt.Sprintf("p99 of %s is %s under attack, %s while a sink is attacked and %s without; its limit is %s",
			what, short(tail), short(p99(control)), short(p99(quiet)), short(limit)))
	}
}

// usual is what is to be expected on this machine while such traffic comes, whoever takes it.
func usual(quiet, control []time.Duration) time.Duration { return max(p99(quiet), p99(control)) }

func (m *Measurement) floor() time.Duration {
	if m.Lax {
		return cmp.Or(m.Floor, noticeable)
	}
	return strictFloor
}

// onlySlow reports whether tails are the only fault.
func (m *Measurement) onlySlow() bool { return len(m.Slow) > 0 && len(m.Faults) == 0 }

// measured are all measurements of this run.
var measured struct {
	sync.Mutex
	rows   []string
	failed []string // the names of rows that did not hold
}

// report fails the test for each fault and adds a row to the table.
func (m *Measurement) report(t testing.TB) {
	t.Helper()
	faults := slices.Concat(m.Faults, m.Slow)
	for _, fault := range faults {
		t.Error(fault)
	}
	name := m.Attack
	if m.Postgres {
		name += ", PostgreSQL"
	}
	memory := "–"
	if m.Peak > 0 {
		memory = fmt.Sprintf("%d of %d", m.Peak, m.Limit)
	}
	t.Logf("%s: did %v, peak %s MiB, contention %.1f", name, m.Did, memory, m.Busy)
	if len(faults) == 0 && t.Failed() {
		faults = []string{"see " + t.Name()}
	}
	row(name, m.tails(func(w Waits) []time.Duration { return w.Submit }), m.tails(func(w Waits) []time.Duration { return w.Start }), memory, faults)
}

func (m *Measurement) tails(of func(Waits) []time.Duration) tails {
	return tails{p99(of(m.Quiet)), p99(of(m.Control)), p99(of(m.Attacked))}
}

// tails are p99s. What is 0 was not measured.
type tails struct{ quiet, control, attacked time.Duration }

func (t tails) String() string {
	return fmt.Sprintf("%s | %s | %s | %s", short(t.quiet), short(t.control), short(t.attacked), ratio(max(t.quiet, t.control), t.attacked))
}

// row adds a row to the table.
func row(name string, submit, start tails, memory string, faults []string) {
	verdict := "held"
	if len(faults) > 0 {
		verdict = "**failed**: " + faults[0]
	}
	measured.Lock()
	defer measured.Unlock()
	measured.rows = append(measured.rows, fmt.Sprintf("| %s | %s | %s | %s | %s |", name, submit, start, memory, verdict))
	if len(faults) > 0 {
		measured.failed = append(measured.failed, name)
	}
}

// reportTest adds a row for a test with only a verdict, or with how long the victim's work took
// without an attack and with it.
func reportTest(t *testing.T, took ...time.Duration) {
	t.Helper()
	var quiet, attacked time.Duration
	if len(took) == 2 {
		quiet, attacked = took[0], took[1]
	}
	t.Cleanup(func() {
		var faults []string
		if t.Failed() {
			faults = []string{"see " + t.Name()}
		}
		row(t.Name(), tails{}, tails{quiet: quiet, attacked: attacked}, "–", faults)
	})
}

func short(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1e3)
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

func ratio(quiet, attacked time.Duration) string {
	if quiet == 0 || attacked == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(attacked)/float64(quiet))
}

// printTable prints all rows as docs/benchmarks.md has them.
func printTable(w io.Writer) {
	if len(measured.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| attack | submit p99, quiet | control | attacked | ratio | start p99, quiet | control | attacked | ratio | peak MiB | verdict |\n%s\n%s\n\n",
		"|---|---|---|---|---|---|---|---|---|---|---|", strings.Join(measured.rows, "\n"))
	fmt.Fprintf(w, "%d of %d held, by the %s.\n", len(measured.rows)-len(measured.failed), len(measured.rows),
		size("full form's floor of "+short(strictFloor), "short form's lax floor of "+short(noticeable)))
	if len(measured.failed) > 0 {
		fmt.Fprintf(w, "These did not: %s.\n", strings.Join(measured.failed, "; "))
	}
}

// The judgement can fail: each kind of fault is found, and none where there is none.
func TestJudgement(t *testing.T) {
	waits := func(d time.Duration) Waits { return Waits{Submit: []time.Duration{d}, Start: []time.Duration{d}} }
	did := map[string]int{"202": 1}
	for name, c := range map[string]struct {
		m            Measurement
		faults, slow int
	}{
		"held":               {Measurement{Quiet: waits(time.Millisecond), Attacked: waits(strictFloor), Peak: 5, Limit: 5, Did: did}, 0, 0},
		"over the floor":     {Measurement{Quiet: waits(time.Millisecond), Attacked: waits(strictFloor + 1), Did: did}, 0, 2},
		"usual by control":   {Measurement{Quiet: waits(time.Millisecond), Control: waits(time.Second), Attacked: waits(2 * time.Second), Did: did}, 0, 0},
		"slow by control":    {Measurement{Quiet: waits(time.Millisecond), Control: waits(time.Second), Attacked: waits(2*time.Second + 1), Did: did}, 0, 2},
		"held, short form":   {Measurement{Lax: true, Quiet: waits(time.Millisecond), Attacked: waits(noticeable), Did: did}, 0, 0},
		"slow, short form":   {Measurement{Lax: true, Quiet: waits(time.Millisecond), Attacked: waits(noticeable + 1), Did: did}, 0, 2},
		"a floor of its own": {Measurement{Lax: true, Floor: time.Second, Attacked: waits(time.Second), Did: did}, 0, 0},
		"twice the usual":    {Measurement{Quiet: waits(time.Second), Attacked: waits(2 * time.Second), Did: did}, 0, 0},
		"slow":               {Measurement{Quiet: waits(time.Second), Attacked: waits(2*time.Second + 1), Did: did}, 0, 2},
		"over its memory":    {Measurement{Peak: 6, Limit: 5, Did: did}, 1, 0},
		"no attack at all":   {Measurement{}, 1, 0},
		"slow and too large": {Measurement{Attacked: waits(noticeable + 1), Peak: 1, Did: did}, 1, 2},
	} {
		if c.m.judge(); len(c.m.Faults) != c.faults || len(c.m.Slow) != c.slow {
			t.Errorf("%s: %q, %q", name, c.m.Faults, c.m.Slow)
		}
	}
	tail := make([]time.Duration, 200)
	tail[3], tail[50], tail[150] = 9, 7, 8
	if got := p99(tail); got != 7 {
		t.Errorf("the 99th percentile of 200 is %d, not the third highest", got)
	}
}
