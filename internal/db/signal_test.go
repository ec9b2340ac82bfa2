package db

import (
	"strconv"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/pgtest"
)

// Signals that wait for one another are all heard, in their order.
func TestSignalsThatWaitAreAllSent(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	from, to := serve(t, Options{URL: url}), serve(t, Options{URL: url})
	heard := make(chan string, 10_000)
	to.OnSignal(func(text string) { heard <- text })
	// until sends a text again and again until it is heard, and returns what else was.
	until := func(text string) (others []string) {
		for deadline := time.Now().Add(time.Minute); ; {
			from.Signal(text)
			select {
			case got := <-heard:
				if got == text {
					return others
				}
				others = append(others, got)
			case <-time.After(10 * time.Millisecond):
				if time.Now().After(deadline) {
					t.Fatalf("%q is not heard", text)
				}
			}
		}
	}
	until("listens")
	const n = 100
	for i := range n {
		if !from.Signal(strconv.Itoa(i)) {
			t.Fatalf("signal %d is not taken", i)
		}
	}
	want := 0
	for _, text := range until("end") {
		if text == "listens" {
			continue
		}
		if text != strconv.Itoa(want) {
			t.Fatalf("signal %s is heard, want %d", text, want)
		}
		want++
	}
	if want != n {
		t.Errorf("%d of %d signals are heard", want, n)
	}
}
