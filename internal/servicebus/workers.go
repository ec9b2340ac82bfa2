package servicebus

import (
	"log/slog"
	"sync"

	"github.com/forebayhq/forebay/internal/panics"
)

// gate counts what goes on, and keeps out what comes after its end. Unlike a WaitGroup it may be
// entered while somebody waits.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

// enter reports whether something may go on. Then leave must be called at its end.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside.Add(1)
	}
	return !g.closed
}

func (g *gate) leave() { g.inside.Done() }

// close lets nothing in any more, and waits for what is inside.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}

// workers carry out the tasks of a link, at most so many at once. Tasks begin in the order in
// which they came. Idle workers are no goroutines.
type workers struct {
	most   int
	group  *sync.WaitGroup // counts those that run
	log    *slog.Logger
	failed func() // called after a task that panicked

	mu      sync.Mutex
	waiting []func()
	running int
}

// do has a task carried out and does not wait for it.
func (w *workers) do(task func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == w.most {
		w.waiting = append(w.waiting, task)
		return
	}
	w.running++
	w.group.Go(func() {
		for task != nil {
			if err := panics.Run(w.log, "a link of Service Bus", func() error { task(); return nil }); err != nil {
				w.failed()
			}
			task = w.next()
		}
	})
}

// next returns the next task, or nil, and then the worker ends.
func (w *workers) next() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.waiting = nil
		w.running--
		return nil
	}
	task := w.waiting[0]
	w.waiting[0] = nil
	w.waiting = w.waiting[1:]
	return task
}
