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
	// noticeable is a wait below which a tail is no fault, however much longer than the quiet one,
	// on a machine with nothing else to do.
	noticeable = 250 * time.Millisecond
	// maxContention bounds by how much a busy machine may raise that.
	maxContention = 6
)

// contention is how many times as long the machine takes now for some work as the work's processor
// time: 1 when nobody else has any. A server that an attack keeps busy waits for the processor that
// much longer, and one that nobody attacks hardly does.
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
	Quiet    Waits
	Attacked Waits
	Peak     int           // resident memory of the server in MiB; 0: not measured
	Limit    int           // of Peak
	Busy     float64       // the machine, by contention
	Floor    time.Duration // of tails; 0: noticeable
	Did      map[string]int
	Faults   []string // what is not as it should be, but for slow
	Slow     []string // tails over their limit
}

// tolerated is the longest tail beside a quiet one, on a machine that busy.
func tolerated(quiet, floor time.Duration, busy float64) time.Duration {
	return max(2*quiet, time.Duration(float64(floor)*max(busy, 1)))
}

// judge adds the faults that the figures show.
func (m *Measurement) judge() {
	m.compare("submit", p99(m.Quiet.Submit), p99(m.Attacked.Submit))
	m.compare("start", p99(m.Quiet.Start), p99(m.Attacked.Start))
	if m.Peak > m.Limit {
		m.Faults = append(m.Faults, fmt.Sprintf("the server resided in up to %d MiB; its limit is %d MiB", m.Peak, m.Limit))
	}
	if len(m.Did) == 0 {
		m.Faults = append(m.Faults, "the attack did nothing")
	}
}

// compare judges one tail.
func (m *Measurement) compare(what string, quiet, attacked time.Duration) {
	if limit := tolerated(quiet, cmp.Or(m.Floor, noticeable), m.Busy); attacked > limit {
		m.Slow = append(m.Slow, fmt.Sprintf("p99 of %s is %s under attack and %s without; its limit is %s", what, short(attacked), short(quiet), short(limit)))
	}
}

// onlySlow reports whether tails are the only fault.
func (m *Measurement) onlySlow() bool { return len(m.Slow) > 0 && len(m.Faults) == 0 }

// measured are all measurements of this run.
var measured struct {
	sync.Mutex
	rows []string
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
	row(name, p99(m.Quiet.Submit), p99(m.Attacked.Submit), p99(m.Quiet.Start), p99(m.Attacked.Start), memory, faults)
}

// row adds a row to the table. Waits of 0 were not measured.
func row(name string, quietSubmit, submit, quietStart, start time.Duration, memory string, faults []string) {
	verdict := "held"
	if len(faults) > 0 {
		verdict = "**failed**: " + faults[0]
	}
	measured.Lock()
	defer measured.Unlock()
	measured.rows = append(measured.rows, fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |", name,
		short(quietSubmit), short(submit), ratio(quietSubmit, submit), short(quietStart), short(start), ratio(quietStart, start), memory, verdict))
}

// reportTest adds a row for a test that ends with a verdict alone, or with what the victim's work took
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
		row(t.Name(), 0, 0, quiet, attacked, "–", faults)
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
	fmt.Fprintf(w, "\n| attack | submit p99, quiet | attacked | ratio | start p99, quiet | attacked | ratio | peak MiB | verdict |\n%s\n%s\n\n",
		"|---|---|---|---|---|---|---|---|---|", strings.Join(measured.rows, "\n"))
}

// The judgement can fail: each kind of fault is found, and none where there is none.
func TestJudgement(t *testing.T) {
	waits := func(d time.Duration) Waits { return Waits{Submit: []time.Duration{d}, Start: []time.Duration{d}} }
	did := map[string]int{"202": 1}
	for name, c := range map[string]struct {
		m            Measurement
		faults, slow int
	}{
		"held":               {Measurement{Quiet: waits(time.Millisecond), Attacked: waits(noticeable), Peak: 5, Limit: 5, Did: did}, 0, 0},
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
