package db

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/panics"
)

// Writer owns the connection that writes. It knows nothing of what is written: that is for its
// participants and for the operations of their callers.
type Writer struct {
	Conn     driver.Conn
	parts    []Participant // in the order in which they serve
	byKey    []Participant // by the index of their keys
	Ops      chan Operation
	Visits   chan Visitor
	received chan *Notification // from other processes
	quit     chan struct{}
	once     sync.Once
	Stopped  chan struct{}
	err      error // of closing; read after stopped
	Serving  bool  // this process delivers: it does what is due without anybody asking
	latest   int64 // the time of the latest transaction
	polled   int64 // when poll last did something
	rests    int64 // until when participants make nothing due, since a transaction failed: see invalidate
	Polling  time.Duration
	publish  func(*Notification) // to other processes; nil: there are none
	mail     mailbox             // from the writer that stores new rows
	Inserter bool                // it is that writer
	// Racing are tables whose unique keys another process may be about to store as well.
	Racing      map[string]bool
	exclusive   bool            // its next transaction must be alone nevertheless
	stale       bool            // another process may have changed settings
	clockBack   chan<- struct{} // gets a value when the clock has gone back; nil: nobody listens
	health      *partHealth     // told how transactions end
	watches     *Watches        // of what its transactions change
	postponed   []Operation     // of the latest batch, for the next transaction
	doubtful    Notification    // of commits that nobody knows to have been done
	backlog     backlog
	Parties     *partyTracker
	sizer       batchSizer
	checkpoints *checkpoints // nil: none but the database's own
}

// Visitor is somebody whom the writer lets in between two transactions, to wait for something.
type Visitor interface{ Visit() }

func newWriter(c driver.Conn, watches *Watches, serving bool, publish func(*Notification)) *Writer {
	w := &Writer{
		Conn: c, watches: watches, Serving: serving, publish: publish,
		Ops: make(chan Operation, MaxBatchOps), Visits: make(chan Visitor, 64), received: make(chan *Notification),
		mail: mailbox{kick: make(chan struct{}, 1)}, quit: make(chan struct{}), Stopped: make(chan struct{}),
		Polling: alonePolling, Parties: &partyTracker{}, Racing: map[string]bool{},
	}
	if w.Shared() {
		w.Polling = sharedPolling
	}
	return w
}

// loadParts has the participants read what they keep in memory.
func (w *Writer) loadParts() (err error) {
	for _, p := range w.parts {
		if err == nil {
			err = p.Load()
		}
	}
	return err
}

// Shared reports whether other processes write to the database as well.
func (w *Writer) Shared() bool { return w.publish != nil }

func (w *Writer) stop() error {
	w.once.Do(func() { close(w.quit) })
	<-w.Stopped
	return w.err
}

// run commits one batch after the other until stop.
func (w *Writer) run() {
	defer close(w.Stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(w.untilNextDue())
		batch, ok := w.collect(timer.C)
		if n := w.mail.take(); n != nil {
			w.receive(n)
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
				e.RoundEnded(err)
			}
		}
		w.checkpoints.finish(w.Conn)
	}
}

// Polling is behind the wake-ups, should one ever be missed or the clock jump.
const (
	alonePolling  = 30 * time.Second
	sharedPolling = 2 * time.Second // a process that shares a database may miss what others do
)

// poll makes everything due that is waited for, if that has not been done for a while.
func (w *Writer) poll() {
	at := w.Clock()
	if at-w.polled < w.Polling.Milliseconds() && at >= w.polled {
		return
	}
	w.polled = at
	w.RescanAll(false)
}

// RescanAll makes everything due. all says that something has changed.
func (w *Writer) RescanAll(all bool) {
	w.stale = w.Shared()
	for _, p := range w.parts {
		p.MarkAllDue(all)
	}
}

// Inexact is by how many milliseconds the clock may be behind the server's. What becomes ready
// within them counts as ready.
const Inexact = 100

// hear takes in what another process, or the other writer, has done.
func (w *Writer) receive(n *Notification) {
	for _, p := range w.parts {
		p.Notified(n)
	}
	if n.Lost || n.Has(WordSettings) {
		w.RescanAll(true)
	} else if len(n.Many) > 0 {
		w.RescanAll(false)
	}
}

// untilNextDue returns how long the writer may sleep when nobody calls.
func (w *Writer) untilNextDue() time.Duration {
	if len(w.postponed) > 0 || !w.backlog.empty() {
		return 0
	}
	at := w.Clock()
	next := max(at, w.polled+w.Polling.Milliseconds())
	for _, p := range w.parts {
		next = min(next, p.NextDue(at))
	}
	return max(0, time.Duration(next-at)*time.Millisecond)
}

func (w *Writer) anythingDue() bool {
	if w.stale {
		return true
	}
	at := w.Clock()
	for _, p := range w.parts {
		if p.NextDue(at) <= at {
			return true
		}
	}
	return false
}

// batchLimit is how many operations one transaction takes.
func (w *Writer) batchLimit() int {
	most := MaxBatchOps
	for _, p := range w.parts {
		if b, ok := p.(bounder); ok {
			most = min(most, b.MostOps())
		}
	}
	return most
}

// collect waits for the first operation, visitor or due time, then takes what else is there, as
// much as one transaction should take. A short yield lets the callers that the last commit woke
// add theirs.
func (w *Writer) collect(timer <-chan time.Time) (batch []Operation, ok bool) {
	size, rows := 0, 0
	take := func(op Operation) {
		batch = append(batch, op)
		size += op.What().Size
		rows += op.What().rows()
	}
	add := func(op Operation) {
		if party := op.What().Party; party != 0 {
			w.Parties.came(party)
			w.backlog.add(party, op)
		} else {
			take(op)
		}
	}
	if !w.backlog.empty() {
		timer = closedTimer
	}
	select {
	case op := <-w.Ops:
		add(op)
	case v := <-w.Visits:
		v.Visit()
	case n := <-w.received:
		w.receive(n)
	case <-w.mail.kick:
	case <-timer:
	case <-w.quit:
		return nil, false
	}
	came, yielded, began := true, false, time.Now()
	most := w.batchLimit()
	for taking := true; taking && len(batch) < most && rows < MaxBatchOps && size < maxBatchBytes; {
		select {
		case op := <-w.Ops:
			came = true
			add(op)
		case v := <-w.Visits:
			came = true
			v.Visit()
		default:
			// Whom the latest transaction has woken come one after the other. As long as some do, the
			// next one waits for more, so that it need not go with half of them. It does not wait for
			// what computes.
			if taking = came && (!yielded || time.Since(began) < maxYielding); taking {
				came, yielded = false, true
				runtime.Gosched()
			}
		}
	}
	// What came at once leaves at least half of the transaction to those who wait.
	enough := w.sizer.rows(w.Parties.Now())
	enough = max(enough, rows+enough/2)
	w.backlog.take(func() bool { return len(batch) < most && rows < enough && size < maxBatchBytes }, take)
	return batch, true
}

// maxYielding is after what time a transaction no longer lets others run that may join it.
const maxYielding = time.Millisecond

// closedTimer is one whose time has come.
var closedTimer = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// Clock is the database's time, about.
func (w *Writer) Clock() int64 {
	if w.Shared() {
		return w.Conn.Now() // which is corrected by the server's with each transaction
	}
	return w.tick(w.Conn.Now())
}

// tick does not follow a clock that steps back a little, for then what is ready would have to wait
// again.
func (w *Writer) tick(at int64) int64 {
	if behind := w.latest - at; behind > 0 && behind < steppedBack {
		return w.latest
	}
	w.noticeClock(at)
	return at
}

// refreshParts asks again what other processes may have changed of the settings.
func (w *Writer) refreshParts() (questions []driver.PipelineQuery, answered []func()) {
	if !w.stale {
		return nil, nil
	}
	for _, p := range w.parts {
		if r, ok := p.(refresher); ok {
			asks, then := r.Refresh()
			if questions = append(questions, asks...); then != nil {
				answered = append(answered, then)
			}
		}
	}
	return questions, answered
}

// serveDue has the participants do what is due.
func (w *Writer) serveDue(t *Tx) error {
	return panics.Run(slog.Default(), "what is due in the store", func() error {
		for _, p := range w.parts {
			serve := p.Serve
			if t.Volatile {
				v, ok := p.(volatileServer)
				if !ok {
					continue
				}
				serve = v.ServeVolatile
			}
			if err := serve(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// refuseAll answers all that wait with an error.
func (w *Writer) refuseAll(err error) {
	for _, p := range w.parts {
		p.Refuse(err)
	}
}

// shutdown refuses what is still waiting and closes the connection.
func (w *Writer) shutdown() {
	w.backlog.take(func() bool { return true }, func(op Operation) { op.finish(ErrClosed) })
	for {
		select {
		case op := <-w.Ops:
			op.finish(ErrClosed)
			continue
		case v := <-w.Visits:
			v.Visit()
			continue
		default:
		}
		break
	}
	w.refuseAll(ErrClosed)
	w.err = errors.Join(w.err, w.Conn.Close())
}
