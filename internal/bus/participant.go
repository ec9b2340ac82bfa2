package bus

import (
	"slices"

	"github.com/forebayhq/forebay/internal/bus/clockmend"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/floors"
	"github.com/forebayhq/forebay/internal/queue"
)

// Participant delivers plain messages to receivers and processes what is due in queues of
// messages.
type Participant struct {
	*db.Writer
	queue.Waiting[*Receiver]
	queue     *queue.Participant
	Webhooks  gate
	noWait    []*Receiver             // receivers that want an answer at once
	behind    map[queue.Subqueue]bool // subqueues whose receivers the next transaction serves
	topics    *rules.Cache[MessageQueue]
	slow      *rules.Slow // messages to be judged outside of transactions
	followed  *FollowedTenants
	Paused    map[queue.Subqueue]int64 // webhooks' subqueues → until when nothing is sent to the endpoint
	nextTask  int64                    // when messages or queues are next due; 0: never
	accessed  map[int64]int64          // entities → when their use was recorded last
	checkedAt int64                    // when it last checked for work that others left, or that it missed
	floors    floors.Floors[queue.Subqueue]
}

// gate gives a message to a receiver that delivers to an endpoint, if the endpoint may be sent
// one.
type gate interface {
	TakeFor(t *Tx, c *Receiver, from Source) error
}

// Tx is the part of a transaction that belongs to package bus. It is divided by subject. Each part
// points back to the Tx for what the parts share.
type Tx struct {
	*db.Tx
	W          *Participant
	Queue      *queue.Tx
	Entities   entityTx
	Topics     topicTx
	Deliveries deliveryTx
	fanOut     fanOutTx
	arrivals   arrivalTx
	forwarding forwardTx
	sessions   sessionTx
	due        dueTx

	copied   rules.FanOut // what topics and forwarding have copied
	dueDone  bool         // one due message or queue was processed
	nextDue  int64        // the earliest due time that this transaction has set; 0: none
	numbered int64        // how often numbers were taken ahead
}

// wordMessages tells the writers of this process when messages or queues are next due.
var wordMessages = db.NewWordKind('e', db.ToWriters)

func newParticipant(w *db.Writer, queues *queue.Participant, topics *rules.Cache[MessageQueue]) *Participant {
	p := &Participant{Writer: w, Waiting: queue.NewWaiting[*Receiver](), queue: queues, topics: topics, Paused: map[queue.Subqueue]int64{}, behind: map[queue.Subqueue]bool{}, accessed: map[int64]int64{}}
	queues.Sets = append(queues.Sets, p)
	return p
}

func newTx(t *db.Tx, p *Participant) *Tx {
	b := &Tx{Tx: t, W: p, Queue: queue.Key.Of(t)}
	b.Entities.Tx, b.Topics.Tx, b.Deliveries.Tx, b.fanOut.Tx = b, b, b, b
	b.arrivals.Tx, b.forwarding.Tx, b.sessions.Tx, b.due.Tx = b, b, b, b
	t.Full = b.copied.Full
	return b
}

func (p *Participant) Load() error {
	p.nextTask, p.floors.On = 0, p.Shared()
	var message int64
	err := p.Conn.RunPipeline(append(entity.AskNext(0, &p.nextTask), entity.AskNextMessage(0, &message)))
	p.dueBy(message)
	return err
}

// Refresh refuses receivers that wait for queues that no longer exist, and forgets these queues. A
// session's receivers give up when its lock ends.
func (p *Participant) Refresh() (questions []driver.PipelineQuery, answered func()) {
	gone := p.Queues()
	if len(gone) == 0 {
		return nil, nil
	}
	kept := driver.PipelineQuery{SQL: "SELECT no FROM queues WHERE kind <> 'deleting'", OnRow: func(r driver.Row) { delete(gone, r.Int(0)) }}
	return []driver.PipelineQuery{kept}, func() {
		for no := range gone {
			p.dropQueue(no)
		}
	}
}

func (p *Participant) MarkAllDue(all bool) {
	p.AllDue(0)
	at := p.Clock()
	p.floors.Sweep(at, p.Polling, all)
	if p.Serving && (all || at-p.checkedAt >= db.Tending.Milliseconds()) {
		p.nextTask, p.checkedAt = 1, at
	}
}

func (p *Participant) Notified(n *db.Notification) {
	n.Each(wordMessages, func(_, _, at int64) { p.dueBy(at); p.floors.Note(dueMessages, at, 0) }) // it is the first of several
	n.Each(wordStatus, func(no, _, _ int64) { p.scanQueue(no) })
	if n.Many[wordStatus] {
		p.AllDue(0)
	}
	if n.Many[queue.WordReady] {
		p.floors.Sweep(p.Clock(), 0, true)
	}
}

// dueBy notes that messages or queues are due at that time.
func (p *Participant) dueBy(at int64) {
	if at > 0 && (p.nextTask == 0 || at < p.nextTask) {
		p.nextTask = at
	}
}

func (p *Participant) Ready(subqueue queue.Subqueue, at int64) {
	if at == ReadyDespitePause {
		delete(p.Paused, subqueue)
	} else {
		p.floors.Note(subqueue, at, p.Clock())
	}
	if p.Tracks(subqueue) {
		p.ScanAt(subqueue, max(at, p.pausedUntil(subqueue)))
	}
}

// ReadyDespitePause is a time for [queue.Tx.WakeAt]: the subqueue is ready now, even if its
// webhook was paused.
const ReadyDespitePause = 0

// pausedUntil returns until when a subqueue need not be scanned, because its webhook's endpoint
// is paused and only the webhook waits; 0: scan it.
func (p *Participant) pausedUntil(subqueue queue.Subqueue) int64 {
	until, ok := p.Paused[subqueue]
	if !ok || slices.ContainsFunc(p.Waiters[subqueue], func(c *Receiver) bool { return c.Waits() && !c.Webhook }) {
		return 0
	}
	return until
}

func (p *Participant) NextDue(int64) int64 {
	next := p.Waiting.NextDue(nil)
	if p.Serving && p.nextTask > 0 {
		next = min(next, p.nextTask)
	}
	return next
}

const sqlTopicsCounter = "SELECT coalesce((SELECT value FROM counters WHERE name = '" + topicsCounter + "'), 0)"

func (p *Participant) Opens(t *db.Tx, _ []db.Operation, _ bool) []driver.PipelineQuery {
	b := Key.Of(t)
	return []driver.PipelineQuery{{SQL: sqlTopicsCounter, Value: func(version int64) { b.Topics.counter = &version }}}
}

// ClockMend repairs what a clock that was ahead has left of messages.
func (p *Participant) ClockMend() db.ClockMend {
	return clockmend.Messages(func(t *db.Tx) { Key.Of(t).DueBy(t.Now) })
}

// MayStoreBeside reports that nobody subscribes to events, so no copies of them are needed.
func (p *Participant) MayStoreBeside() bool { return p.followed != nil && len(p.followed.Topics) == 0 }

// StageEnded drops what operations of the stage have dropped.
func (p *Participant) StageEnded(t *db.Tx, _ db.Stage) error {
	if b := Key.Begun(t); b != nil {
		return b.Entities.DropNow()
	}
	return nil
}

func (p *Participant) Serve(t *db.Tx) error {
	if p.Serving && p.nextTask > 0 && p.nextTask <= t.Now {
		next, err := Key.Of(t).due.process()
		if err != nil {
			return err
		}
		p.nextTask = next // what the transaction has set itself is added once it is committed
	}
	return p.serveReceivers(t)
}

func (p *Participant) Committed(t *db.Tx) {
	p.floors.Committed(t.Took)
	b := Key.Begun(t)
	if b == nil {
		return
	}
	p.dueBy(b.nextDue)
	if b.nextDue > 0 {
		t.Notify(wordMessages, 0, 0, b.nextDue)
	}
	for _, c := range b.Deliveries.served {
		c.Deliver()
	}
}

func (p *Participant) Invalidate(t *db.Tx, at int64) {
	p.floors.RolledBack()
	if b := Key.Begun(t); b != nil {
		for _, c := range b.Deliveries.served {
			c.unserve()
		}
	}
	clear(p.Paused)
	clear(p.accessed)
	p.AllDue(at)
	p.nextTask = at
}

// RoundEnded answers the receivers that do not wait and found nothing. err is why the last
// transaction failed. If one operation caused that, the next transaction serves the receivers.
func (p *Participant) RoundEnded(err error) {
	if err != nil && p.Isolates(err) {
		return
	}
	later := p.noWait[:0]
	for _, c := range p.noWait {
		if err == nil && p.behind[c.Subqueue] {
			later = append(later, c)
		} else if c.Begin() { // else it was served, or is gone
			c.Err = p.Conn.UserError(err)
			c.Deliver()
			p.Waiters[c.Subqueue] = slices.DeleteFunc(p.Waiters[c.Subqueue], func(other *Receiver) bool { return other == c })
			if len(p.Waiters[c.Subqueue]) == 0 {
				p.Leave(c.Subqueue)
			}
		}
	}
	clear(p.noWait[len(later):])
	p.noWait = later
}

// DueBy notes that messages or queues are due at that time; 0: never.
func (t *Tx) DueBy(at int64) {
	if at > 0 && (t.nextDue == 0 || at < t.nextDue) {
		t.nextDue = at
	}
	if at > 0 {
		t.W.floors.Note(dueMessages, at, t.Now)
	}
}
