package store

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/panics"
)

// writer owns the connection that writes. It knows nothing of what is written: that is for its participants
// and for the operations of their callers.
type writer struct {
	conn     conn
	parts    []participant // in the order in which they serve
	byKey    []participant // by the index of their keys
	ops      chan operation
	visits   chan visitor
	received chan *notification // from other processes
	quit     chan struct{}
	once     sync.Once
	stopped  chan struct{}
	err      error // of closing; read after stopped
	serving  bool  // this process delivers: it does what is due without anybody asking
	latest   int64 // the time of the latest transaction
	polled   int64 // when poll last did something
	polling  time.Duration
	publish  func(*notification) // to other processes; nil: there are none
	mail     mailbox             // from the writer that stores new rows
	apart    bool                // it is that writer
	// racing are tables whose unique keys another process may be about to store as well.
	racing      map[string]bool
	exclusive   bool            // its next transaction must be alone nevertheless
	stale       bool            // another process may have changed settings
	clockBack   chan<- struct{} // gets a value when the clock has gone back; nil: nobody listens
	health      *partHealth     // told how transactions end
	watches     *watches        // of what its transactions change
	postponed   []operation     // of the latest batch, for the next transaction
	backlog     backlog
	company     *company
	appetite    appetite
	checkpoints *checkpoints // nil: none but the database's own
}

// visitor is somebody whom the writer lets in between two transactions, to wait for something.
type visitor interface{ visit() }

func newWriter(c conn, watches *watches, serving bool, publish func(*notification)) *writer {
	w := &writer{
		conn: c, watches: watches, serving: serving, publish: publish,
		ops: make(chan operation, maxBatchOps), visits: make(chan visitor, 64), received: make(chan *notification),
		mail: mailbox{kick: make(chan struct{}, 1)}, quit: make(chan struct{}), stopped: make(chan struct{}),
		polling: alonePolling, company: &company{}, racing: map[string]bool{},
	}
	if w.shared() {
		w.polling = sharedPolling
	}
	return w
}

// loadParts has the participants read what they keep in memory.
func (w *writer) loadParts() (err error) {
	for _, p := range w.parts {
		if err == nil {
			err = p.load()
		}
	}
	return err
}

// shared reports whether other processes write to the database as well.
func (w *writer) shared() bool { return w.publish != nil }

func (w *writer) stop() error {
	w.once.Do(func() { close(w.quit) })
	<-w.stopped
	return w.err
}

// run commits one batch after the other until stop.
func (w *writer) run() {
	defer close(w.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(w.untilNextDue())
		batch, ok := w.collect(timer.C)
		if n := w.mail.take(); n != nil {
			w.hear(n)
		}
		w.poll()
		if !ok {
			for len(w.postponed) > 0 {
				_ = w.commit(w.postponed) // their callers are told
			}
			w.shutdown()
			return
		}
		err := w.commit(append(w.postponed, batch...))
		for _, p := range w.parts {
			if e, ok := p.(ender); ok {
				e.roundEnded(err)
			}
		}
		w.checkpoints.finish(w.conn)
	}
}

// Polling is behind the wake-ups, should one ever be missed or the clock jump.
const (
	alonePolling  = 30 * time.Second
	sharedPolling = 2 * time.Second // a process that shares a database may miss what others do
)

// poll makes everything due that is waited for, if that has not been done for a while.
func (w *writer) poll() {
	at := w.clock()
	if at-w.polled < w.polling.Milliseconds() && at >= w.polled {
		return
	}
	w.polled = at
	w.everybodyLooks(false)
}

// everybodyLooks makes everything due. all says that something has changed.
func (w *writer) everybodyLooks(all bool) {
	w.stale = w.shared()
	for _, p := range w.parts {
		p.lookAgain(all)
	}
}

// inexact is by how many milliseconds the clock may be behind the server's: what seems to become ready within
// them is taken to be so already.
const inexact = 100

// hear takes in what another process, or the other writer, has done.
func (w *writer) hear(n *notification) {
	for _, p := range w.parts {
		p.notified(n)
	}
	if n.lost || n.has(wordSettings) {
		w.everybodyLooks(true)
	} else if len(n.many) > 0 {
		w.everybodyLooks(false)
	}
}

// untilNextDue returns how long the writer may sleep when nobody calls.
func (w *writer) untilNextDue() time.Duration {
	if len(w.postponed) > 0 || !w.backlog.empty() {
		return 0
	}
	at := w.clock()
	next := max(at, w.polled+w.polling.Milliseconds())
	for _, p := range w.parts {
		next = min(next, p.nextDue(at))
	}
	return max(0, time.Duration(next-at)*time.Millisecond)
}

func (w *writer) anythingDue() bool {
	if w.stale {
		return true
	}
	at := w.clock()
	for _, p := range w.parts {
		if p.nextDue(at) <= at {
			return true
		}
	}
	return false
}

// batchLimit is how many operations one transaction takes.
func (w *writer) batchLimit() int {
	most := maxBatchOps
	for _, p := range w.parts {
		if b, ok := p.(bounder); ok {
			most = min(most, b.mostOps())
		}
	}
	return most
}

// collect waits for the first operation, visitor or due time, then takes what else is there, as much as one
// transaction should take. A short yield lets the callers that the last commit woke add theirs.
func (w *writer) collect(timer <-chan time.Time) (batch []operation, ok bool) {
	size, rows := 0, 0
	take := func(op operation) {
		batch = append(batch, op)
		size += op.bytes()
		rows += op.rows()
	}
	add := func(op operation) {
		if party := op.party(); party != 0 {
			w.company.came(party)
			w.backlog.add(party, op)
		} else {
			take(op)
		}
	}
	if !w.backlog.empty() {
		timer = closedTimer
	}
	select {
	case op := <-w.ops:
		add(op)
	case v := <-w.visits:
		v.visit()
	case n := <-w.received:
		w.hear(n)
	case <-w.mail.kick:
	case <-timer:
	case <-w.quit:
		return nil, false
	}
	yielded := false
	most := w.batchLimit()
	for taking := true; taking && len(batch) < most && size < maxBatchBytes; {
		select {
		case op := <-w.ops:
			add(op)
		case v := <-w.visits:
			v.visit()
		default:
			if taking = !yielded; taking {
				yielded = true
				runtime.Gosched()
			}
		}
	}
	// What came at once leaves at least half of the transaction to those who wait.
	enough := w.appetite.rows(w.company.now())
	enough = max(enough, rows+enough/2)
	w.backlog.take(func() bool { return len(batch) < most && rows < enough && size < maxBatchBytes }, take)
	return batch, true
}

// closedTimer is one whose time has come.
var closedTimer = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// clock is the database's time, about.
func (w *writer) clock() int64 {
	if w.shared() {
		return w.conn.now() // which is corrected by the server's with each transaction
	}
	return w.tick(w.conn.now())
}

// tick does not follow a clock that steps back a little, for then what is ready would have to wait
// again.
func (w *writer) tick(at int64) int64 {
	if behind := w.latest - at; behind > 0 && behind < steppedBack {
		return w.latest
	}
	w.noticeClock(at)
	return at
}

// refreshParts reads again what other processes may have changed of the settings.
func (w *writer) refreshParts() error {
	if !w.stale {
		return nil
	}
	for _, p := range w.parts {
		if r, ok := p.(refresher); ok {
			if err := r.refresh(); err != nil {
				return err
			}
		}
	}
	w.stale = false
	return nil
}

// serveDue has the participants do what is due.
func (w *writer) serveDue(t *tx) error {
	return panics.Run(slog.Default(), "what is due in the store", func() error {
		for _, p := range w.parts {
			if err := p.serve(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// refuseAll answers all that wait with an error.
func (w *writer) refuseAll(err error) {
	for _, p := range w.parts {
		p.refuse(err)
	}
}

// shutdown refuses what is still waiting and closes the connection.
func (w *writer) shutdown() {
	w.backlog.take(func() bool { return true }, func(op operation) { op.finish(errClosed) })
	for {
		select {
		case op := <-w.ops:
			op.finish(errClosed)
			continue
		case v := <-w.visits:
			v.visit()
			continue
		default:
		}
		break
	}
	w.refuseAll(errClosed)
	w.err = errors.Join(w.err, w.conn.Close())
}
