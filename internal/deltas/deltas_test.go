package deltas

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
)

func call(job string, attempt int) *forebay.TaskCall {
	return &forebay.TaskCall{JobID: job, Generation: 1, Number: attempt}
}

// readAll reads what there is: its text, and where it begins.
func readAll(l *Listener) (text string, offset int, attempt int) {
	for {
		d, ok := l.Next()
		if !ok {
			return text, offset, attempt
		}
		if text == "" {
			offset = d.Offset
		}
		text, attempt = text+d.Text, d.Attempt
	}
}

func TestListenersReadWhatIsWritten(t *testing.T) {
	h := NewHub(nil)
	early := h.Listen("a")
	other := h.Listen("b")
	write, end := h.Begin(call("a", 1))
	write("one ")
	if text, _, _ := readAll(early); text != "one " {
		t.Errorf("read %q", text)
	}
	write("one two ")
	write("one two thrée")
	late := h.Listen("a")
	for name, l := range map[string]*Listener{"early": early, "late": late} {
		<-l.Grown
		text, offset, attempt := readAll(l)
		if want := map[string]string{"early": "two thrée", "late": "one two thrée"}[name]; text != want || attempt != 1 || offset != len("one two thrée")-len(want) {
			t.Errorf("%s read %q at %d of attempt %d", name, text, offset, attempt)
		}
	}
	write("one two thrée four")
	end()
	if text, _, _ := readAll(late); text != " four" {
		t.Errorf("after the end %q is left", text)
	}
	write, end = h.Begin(call("a", 2)) // early has missed the end of the first
	write("again")
	if text, offset, attempt := readAll(early); text != "again" || offset != 0 || attempt != 2 {
		t.Errorf("read %q at %d of attempt %d", text, offset, attempt)
	}
	end()
	if text, _, _ := readAll(other); text != "" {
		t.Errorf("another job's listener read %q", text)
	}
	for _, l := range []*Listener{early, late, other} {
		l.Close()
	}
	if len(h.calls)+len(h.listeners) > 0 || h.followed.Load() != 0 {
		t.Errorf("left: %d calls, %d listeners, %d followed", len(h.calls), len(h.listeners), h.followed.Load())
	}
}

// A text is cut between characters, however long it is.
func TestLongTextsAreCut(t *testing.T) {
	h := NewHub(nil)
	all := strings.Repeat("ä€😀", maxEventBytes)
	write, end := h.Begin(call("a", 1))
	defer end()
	write(all)
	l := h.Listen("a")
	defer l.Close()
	var got strings.Builder
	for {
		d, ok := l.Next()
		if !ok {
			break
		}
		if len(d.Text) > maxEventBytes || d.Offset != got.Len() || strings.ToValidUTF8(d.Text, "") != d.Text {
			t.Fatalf("%d bytes at %d, after %d", len(d.Text), d.Offset, got.Len())
		}
		got.WriteString(d.Text)
	}
	if got.String() != all {
		t.Error("the parts are not the whole")
	}
}

// wire connects hubs as processes of one database are.
type wire struct {
	hubs    []*Hub
	sent    atomic.Int64 // signals with text
	longest atomic.Int64
	drops   atomic.Bool
}

func (w *wire) join() *Hub {
	var self *Hub
	self = NewHub(func(s string) bool {
		if n := int64(len(s)); n > w.longest.Load() {
			w.longest.Store(n)
		}
		if strings.Contains(s, `"delta"`) {
			w.sent.Add(1)
		}
		if w.drops.Load() {
			return true
		}
		for _, other := range w.hubs {
			if other != self {
				other.Receive(s)
			}
		}
		return true
	})
	w.hubs = append(w.hubs, self)
	return self
}

// after lets that much time go by, in a bubble.
func after(d time.Duration) { <-time.After(d) }

func TestOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer func() { stop(); synctest.Wait() }()
		var w wire
		worker, answers := w.join(), w.join()
		for _, h := range w.hubs {
			go h.Run(ctx)
		}
		write, end := worker.Begin(call("a", 1))
		write("nobody listens ")
		after(time.Second)
		if n := w.sent.Load(); n > 0 {
			t.Errorf("%d signals though nobody listens", n)
		}
		l := answers.Listen("a")
		after(time.Second)
		if text, offset, _ := readAll(l); text != "nobody listens " || offset != 0 {
			t.Errorf("read %q at %d", text, offset)
		}
		// Many small parts travel together.
		all, before := "nobody listens ", w.sent.Load()
		for i := range 1000 {
			all += fmt.Sprint(i, `"\`, "\x00 ")
			write(all)
			after(time.Millisecond)
		}
		end()
		after(time.Second)
		if text, _, _ := readAll(l); "nobody listens "+text != all {
			t.Errorf("%d bytes of %d arrived", len(text), len(all))
		}
		if n := w.sent.Load() - before; n > 1000/pause.Milliseconds()*signalsPerCall || w.longest.Load() > 7900 {
			t.Errorf("%d signals, the longest of %d bytes", n, w.longest.Load())
		}
		// The next attempt begins anew, long after.
		after(time.Minute)
		write, end = worker.Begin(call("a", 2))
		write("second")
		after(time.Second)
		if text, offset, attempt := readAll(l); text != "second" || offset != 0 || attempt != 2 {
			t.Errorf("read %q at %d of attempt %d", text, offset, attempt)
		}
		// Nobody listens any more: nothing is sent.
		l.Close()
		after(wantFor + 2*wantEvery)
		before = w.sent.Load()
		write("second more")
		end()
		after(time.Second)
		worker.mu.Lock()
		defer worker.mu.Unlock()
		answers.mu.Lock()
		defer answers.mu.Unlock()
		if n := w.sent.Load(); n != before || len(worker.wanted)+len(worker.behind)+len(answers.calls) > 0 {
			t.Errorf("%d signals; wanted %v, behind %v, kept %v", n-before, worker.wanted, worker.behind, answers.calls)
		}
	})
}

// What is lost shows as a gap, and a text that runs ahead of the bound is cut.
func TestLossesShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer func() { stop(); synctest.Wait() }()
		var w wire
		worker, answers := w.join(), w.join()
		for _, h := range w.hubs {
			go h.Run(ctx)
		}
		l := answers.Listen("a")
		defer l.Close()
		write, end := worker.Begin(call("a", 1))
		defer end()
		write("one ")
		after(time.Second)
		w.drops.Store(true)
		write("one two ")
		after(time.Second)
		w.drops.Store(false)
		write("one two three")
		after(time.Second)
		first, _ := l.Next()
		if first.Offset != len("one two ") || first.Text != "three" {
			t.Errorf("read %+v", first) // the part before the gap was not read in time
		}
		all := "one two three" + strings.Repeat("x", 10*keptBytes)
		write(all)
		after(10 * time.Second)
		text, offset, _ := readAll(l)
		if offset+len(text) != len(all) || len(text) > 2*keptBytes || len(text) < caughtUpBytes/2 {
			t.Errorf("read %d bytes at %d of %d", len(text), offset, len(all))
		}
	})
}

// Signals that nobody of ours has sent do no harm.
func TestForeignSignals(t *testing.T) {
	h := NewHub(func(string) bool { return true })
	l := h.Listen("a")
	defer l.Close()
	for _, s := range []string{"", "{", `[]`, `{"delta":{"job_id":"b","text":"x"}}`, `{"delta":{"job_id":"a","offset":-5,"text":"x"}}`, `{"delta":{"job_id":"a","offset":9223372036854775807,"text":"x"}}`, `{"want":[7]}`} {
		h.Receive(s)
		readAll(l)
	}
	for i := range maxWanted + 10 {
		h.Receive(fmt.Sprintf(`{"want":["j%d"]}`, i))
	}
	if len(h.wanted) != maxWanted {
		t.Errorf("%d jobs are wanted", len(h.wanted))
	}
}

// Whoever begins to listen gets what was written before, also on a second process, and on one
// whose listener has left and come back.
func TestEveryProcessCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer func() { stop(); synctest.Wait() }()
		var w wire
		worker, first, second := w.join(), w.join(), w.join()
		for _, h := range w.hubs {
			go h.Run(ctx)
		}
		write, end := worker.Begin(call("a", 1))
		defer end()
		write("one ")
		stays := first.Listen("a")
		defer stays.Close()
		after(time.Second)
		for _, what := range []string{"a second process", "one whose listener came back"} {
			l := second.Listen("a")
			after(time.Second)
			if text, offset, _ := readAll(l); text != "one " || offset != 0 {
				t.Errorf("%s read %q at %d", what, text, offset)
			}
			l.Close()
		}
		write("one two")
		after(time.Second)
		if text, offset, _ := readAll(stays); text != "one two" || offset != 0 {
			t.Errorf("the listener that stays read %q at %d", text, offset)
		}
	})
}
