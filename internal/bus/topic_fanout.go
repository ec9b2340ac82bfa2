package bus

import (
	"context"
	"errors"
	"slices"

	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/turns"
)

// A topic may have to make too many copies of a message for one transaction. The message is then
// stored once, in the topic, and is pending: its copies are made in several transactions.
// Messages that come to the topic meanwhile are pending too, so that no message overtakes
// another.
//
// The sender makes the copies before it has its answer. If it fails, the writer does. Copies are
// made in the order of the subscriptions' numbers, all copies of one subscription in one
// transaction. The message's row says which subscription is next.

// fanOutTx makes the copies of messages that became active in topics.
type fanOutTx struct {
	*Tx
	pending map[int64]bool         // topics in which the transaction has stored pending messages
	listed  map[int64]*pendingList // by topic; not used where a statement is cheap
}

// pendingList are the messages that have waited longest in a topic.
type pendingList struct {
	rest []sized
	all  bool // there are no others
}

const (
	// senderTime is how long a sender has for one transaction before the writer helps, in
	// milliseconds.
	senderTime = 10_000
	// slowPause is how long the writer leaves a message alone while it is judged, or its rules
	// are compiled, outside of transactions. It is in milliseconds.
	slowPause = 1_000
)

// batchSize is how many copies of a message one transaction makes.
func (a *arrival) batchSize() int {
	size := a.Size()
	if a.share != nil || len(a.Body)+len(a.Properties)+len(a.AMQP) >= minSharedBytes {
		size -= int64(len(a.Body) + len(a.AMQP))
	}
	return int(min(rules.BatchCopies, max(1, rules.FullCopyBytes/max(1, size))))
}

// start gives the topic's subscriptions their copies of a message that became active in it.
func (t *fanOutTx) start(topic MessageQueue, seq int64, a arrival) error {
	picks := a.picks
	a.picks = nil // they do not hold for a topic that a copy is forwarded to
	if a.first == 0 {
		a.first = seq
	}
	if t.copiesPending(topic) || a.inBatches {
		return t.storePending(topic, seq, a, len(picks))
	}
	if picks == nil {
		var err error
		picks, err = t.Topics.pickEvent(topic, a.MessageContent)
		if errors.Is(err, errNotReady) { // it waits for its rules, and later messages wait for it
			return t.storePending(topic, seq, a, 0)
		}
		if err != nil {
			return err
		}
	}
	if len(picks) > a.batchSize() {
		return t.storePending(topic, seq, a, len(picks))
	}
	if a.fanOut == nil {
		a.fanOut = &rules.FanOut{Copies: len(picks), Bytes: int64(len(picks)) * a.Size()}
	}
	return t.copyTo(picks, seq, a)
}

// copyTo makes copies of the message that became active in a topic under that number.
func (t *fanOutTx) copyTo(picks []pick, seq int64, a arrival) error {
	a.inBatches, a.bySender = false, false // these do not hold for a topic that a copy is forwarded to
	t.copied.Add(len(picks), a.shareAmong(seq, len(picks)))
	missing := len(picks) - len(t.Queue.Seqs)
	for _, p := range picks {
		missing += int(driver.BoolInt(p.To.Queue.ForwardTo != "")) // it gets another number where it is forwarded to
	}
	if missing > 1 {
		if err := t.Queue.ReserveSeqs(missing); err != nil {
			return err
		}
	}
	for _, p := range picks {
		a.MessageContent = p.Content
		if p.Why == nil {
			if _, err := t.arrivals.add(p.To.Queue, a); err != nil {
				return err
			}
			continue
		}
		seq, err := t.Queue.NewSeq()
		if err != nil {
			return err
		}
		if err := t.forwarding.arriveDead(p.To.Queue, seq, a, *p.Why); err != nil {
			return err
		}
	}
	return nil
}

// copiesPending reports whether messages wait in the topic for their copies.
func (t *fanOutTx) copiesPending(topic MessageQueue) bool {
	return topic.CopiesPending || t.pending[topic.No]
}

// storePending keeps a message in the topic that needs many copies, or waits for other pending
// messages.
func (t *fanOutTx) storePending(topic MessageQueue, seq int64, a arrival, picks int) error {
	at := t.Now
	if a.bySender {
		at += senderTime
	}
	t.DueBy(at)
	copies := int64(0)
	if a.fanOut != nil {
		copies = int64(max(a.fanOut.Copies-picks, 0))
	}
	a.shareAmong(seq, rules.BatchCopies)
	if t.pending == nil {
		t.pending = map[int64]bool{}
	}
	t.pending[topic.No] = true
	delete(t.listed, topic.No)
	return t.arrivals.insert(topic, seq, a, position{subqueue: topic.Subqueue(false), flow: pendingFlow, dueAt: at, handed: 1, copies: copies})
}

// makeCopies makes the copies of a send's messages that wait in a topic, and of those before
// them. The writer makes the rest if the database fails or the caller is gone.
func (s *Store) makeCopies(ctx context.Context, topic MessageQueue, sent sent, judged *judgement) {
	picks := map[int64][]pick{}
	if judged != nil {
		for i, seq := range sent.seqs {
			if picks[seq] == nil && seq > sent.below { // it is no duplicate
				picks[seq] = rules.InOrder(judged.Copies[i])
			}
		}
	}
	for last := slices.Max(sent.seqs); ; {
		o := db.Op{Stage: db.StageChange, Party: topic.Tenant, Rows: rules.BatchCopies, Local: true, Interleaves: true,
			Touches: []driver.RowName{{Of: "pending", No: topic.No}}}
		next, err := db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (int64, error) {
			if err := t.Prefetch([]driver.Prefetch{entity.Prefetch(topic.No)}); err != nil { // once, for all who wait for the topic
				return 0, err
			}
			q, found, err := t.MessageQueue(topic.No)
			if err != nil || !found {
				return 0, err // the topic is gone, and its messages with it
			}
			of := picks
			if judged == nil || judged.Version != q.Version {
				of = nil
			}
			if err := t.fanOut.foreseePending(of, q); err != nil {
				return 0, err
			}
			next := int64(0)
			err = t.Alone(func() error { // for what a transaction makes of topics is counted
				next, err = t.fanOut.copyNext(q, of)
				return err
			})
			if errors.Is(err, rules.ErrSteps) {
				t.Topics.judgeLater(err, rules.SlowMessage{Tenant: q.Tenant, Topic: q.No, Seq: next})
				return 0, nil
			}
			return next, err
		})
		if err != nil || next == 0 || next > last {
			return
		}
	}
}

// The visible time of pending messages is 0.
const (
	sqlNextPending = "SELECT seq FROM messages WHERE subqueue = ? AND flow = ? ORDER BY visible_at, seq LIMIT 1"
)

// sqlPendingList has a form of its own for many at once: by arrays the index would not give its
// order.
var sqlPendingList = driver.PrefetchForm("SELECT seq, size FROM messages WHERE subqueue = ? AND flow = ? ORDER BY visible_at, seq LIMIT ? + 0",
	`SELECT x.p1, x.p2, x.p3, q.* FROM %s,
  LATERAL (SELECT seq, size FROM messages WHERE subqueue = x.p1 AND flow = x.p2 ORDER BY visible_at, seq LIMIT x.p3 + 0) AS q`)

// prefetchPending asks what waits longest in a topic.
func prefetchPending(topic MessageQueue) driver.Prefetch {
	return driver.NewPrefetch(sqlPendingList, driver.RowName{Of: "pending", No: topic.No}).Int(int64(topic.Subqueue(false))).Int(pendingFlow).Int(dueBatch)
}

// foreseePending reads ahead what waits longest in topics, and what its copies need. Known copies
// are in picks, by message number.
func (t *fanOutTx) foreseePending(picks map[int64][]pick, topics ...MessageQueue) error {
	if !t.W.Shared() {
		return nil
	}
	if err := t.listPending(topics); err != nil {
		return err
	}
	var all []sized
	var asks []driver.Prefetch
	for _, topic := range topics {
		if list := t.listed[topic.No]; list != nil {
			all = append(all, list.rest...)
		}
	}
	for _, m := range all {
		asks = append(asks, driver.NewPrefetch(sqlHanded, queue.MessageRow(m.seq)).Int(m.seq))
	}
	if err := t.forwarding.readAhead(all, asks...); err != nil {
		return err
	}
	return t.foresee(0, func(f *foresight) {
		for _, topic := range topics {
			if f.fanOut.listed[topic.No] == nil {
				continue
			}
			for _, m := range f.fanOut.listed[topic.No].rest {
				if a, known := f.forwarding.ahead[m.seq]; known {
					f.numbers += len(picks[m.seq])
					f.copiesOf(topic, a.MessageContent, picks[m.seq], a.hops)
				}
			}
		}
	})
}

// listPending lists what waits longest in topics, where that was not done yet. A list that is
// forgotten while it is asked stays forgotten: another has stored a message meanwhile.
func (t *fanOutTx) listPending(topics []MessageQueue) error {
	missing := map[int64]*pendingList{}
	var asks []driver.Prefetch
	for _, topic := range topics {
		if t.listed[topic.No] != nil {
			continue
		}
		if t.listed == nil {
			t.listed = map[int64]*pendingList{}
		}
		list := &pendingList{all: true}
		t.listed[topic.No], missing[topic.No] = list, list
		asks = append(asks, prefetchPending(topic))
	}
	if err := t.Prefetch(asks); err != nil {
		return err
	}
	for no, list := range missing {
		topic := MessageQueue{No: no}
		err := t.Prep(sqlPendingList).Int(int64(topic.Subqueue(false))).Int(pendingFlow).Int(dueBatch).Each(func(r driver.Row) error {
			list.rest = append(list.rest, sized{r.Int(0), r.Int(1)})
			list.all = len(list.rest) < dueBatch
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// nextPending returns the message that has waited longest in the topic; 0: none waits.
func (t *fanOutTx) nextPending(topic MessageQueue) (next int64, err error) {
	if t.W.Shared() {
		if list := t.listed[topic.No]; list == nil || len(list.rest) == 0 && !list.all {
			delete(t.listed, topic.No)
			if err := t.foreseePending(nil, topic); err != nil {
				return 0, err
			}
		}
		if list := t.listed[topic.No]; list != nil && len(list.rest) > 0 {
			next = list.rest[0].seq
		}
		return next, nil
	}
	_, err = t.Prep(sqlNextPending).Int(int64(topic.Subqueue(false))).Int(pendingFlow).One(func(r driver.Row) { next = r.Int(0) })
	return next, err
}

// delist notes that a message that was listed has all its copies, or is gone.
func (t *fanOutTx) delist(topic, seq int64) {
	if list := t.listed[topic]; list != nil && len(list.rest) > 0 && list.rest[0].seq == seq {
		list.rest = list.rest[1:]
	}
}

// copyNext makes copies of the messages that have waited longest in the topic, as many as one
// transaction should. Known copies are in picks, by message number. It returns the number of the
// next pending message; 0: there is none. It returns rules.ErrSteps if that message takes too
// long to judge.
func (t *fanOutTx) copyNext(topic MessageQueue, picks map[int64][]pick) (next int64, err error) {
	for copies := 0; ; {
		next, err := t.nextPending(topic)
		// Where operations wait for answers together, others may have filled the transaction.
		if err != nil || next == 0 || copies >= rules.BatchCopies || (copies > 0 || t.W.Shared()) && t.copied.Full() {
			return next, err
		}
		n, err := t.copyMessage(topic, next, picks[next])
		if err != nil {
			if copies > 0 && errors.Is(err, rules.ErrSteps) {
				err = nil
			}
			return next, err
		}
		copies += n
	}
}

// pendingMessage is a message that waits in its topic for its copies. The next copy is for
// subscription number handed or a higher one. The message has so many copies already, and was
// enqueued at that time.
type pendingMessage struct {
	arrival
	seq, handed, copies, at int64
}

// readPending reads a pending message. It is not found once it has all its copies.
func readPending(c driver.Conn, seq int64) (p pendingMessage, found bool, err error) {
	if p, found, err = readHanded(c, seq); err == nil && found {
		p.arrival, err = arrivalOf(c, seq, p.at)
	}
	return p, found, err
}

const sqlHanded = "SELECT handed, copies, enqueued_at FROM bodies WHERE seq = ? AND handed IS NOT NULL"

// readHanded is readPending without the message itself.
func readHanded(c driver.Conn, seq int64) (p pendingMessage, found bool, err error) {
	p.seq = seq
	found, err = c.Prep(sqlHanded).Int(seq).One(func(r driver.Row) { p.handed, p.copies, p.at = r.Int(0), r.Int(1), r.Int(2) })
	return p, found, err
}

// copyMessage makes as many copies of a message as one transaction should and returns how many,
// at least 1. It judges the message unless picks are known.
func (t *fanOutTx) copyMessage(topic MessageQueue, seq int64, picks []pick) (copies int, err error) {
	p, found, err := readHanded(t.Conn, seq)
	if err != nil || !found {
		t.delist(topic.No, seq)
		return 1, err
	}
	if p.arrival, err = t.forwarding.arrival(seq); err != nil {
		return 0, err
	}
	more := false
	if picks == nil {
		picks, more, err = t.pickBatch(topic, &p)
	} else {
		picks, more = rules.From(picks, p.handed, p.batchSize())
	}
	if err != nil {
		return 0, err
	}
	if !more {
		t.delist(topic.No, seq)
	}
	return len(picks) + 1, t.copyBatch(seq, p, picks, more)
}

// copyBatch makes these copies of a message. more: others are to be made later.
func (t *fanOutTx) copyBatch(seq int64, p pendingMessage, picks []pick, more bool) error {
	a := p.arrival
	if a.share != nil && a.share.no == seq {
		a.share.properties = a.Properties
	}
	copies := int(p.copies) + len(picks)
	a.fanOut = &rules.FanOut{Copies: copies, Bytes: int64(copies) * a.Size()}
	if err := t.copyTo(picks, seq, a); err != nil {
		return err
	}
	if !more {
		return t.DeleteMessage(seq)
	}
	return t.Prep("UPDATE bodies SET handed = ?, copies = ? WHERE seq = ?").Int(picks[len(picks)-1].To.No + 1).Int(int64(a.fanOut.Copies)).Int(seq).Exec()
}

// pickBatch picks the next copies of a message, as far as it can be judged in a transaction.
func (t *fanOutTx) pickBatch(topic MessageQueue, p *pendingMessage) (picks []pick, more bool, err error) {
	c, err := t.Topics.ready(topic)
	if errors.Is(err, errNotReady) {
		err = rules.ErrSteps
	}
	if err != nil {
		return nil, false, err
	}
	if t.W.slow.Has(rules.SlowMessage{Tenant: topic.Tenant, Topic: topic.No, Seq: p.seq}) {
		return nil, false, rules.ErrSteps
	}
	left := rules.TxSteps
	picks, more, err = c.PickSome(p.MessageContent, p.at, p.handed, p.batchSize(), &left, false, nil)
	t.copied.Steps += rules.TxSteps - left
	return picks, more, err
}

// resume makes copies in a topic where a pending message is due. Earlier messages come first.
func (t *fanOutTx) resume(m dueMessage) error {
	topic, found, err := t.MessageQueue(m.subqueue.Queue())
	if err != nil {
		return err
	}
	if !found { // the topic is being deleted
		return t.DeleteMessage(m.seq)
	}
	at := t.Now
	switch next, err := t.copyNext(topic, nil); {
	case errors.Is(err, rules.ErrSteps):
		t.Topics.judgeLater(err, rules.SlowMessage{Tenant: topic.Tenant, Topic: topic.No, Seq: next})
		at += slowPause
	case err != nil || next == 0 || next > m.seq: // it has all its copies
		return err
	}
	return t.postpone(m.seq, at)
}

// copySlow makes the next copies of a message that takes too long to judge in a transaction. A
// subscription whose rules take too long even here counts as one whose rules cannot judge the
// message. So no message delays those behind it for ever.
func (s *Store) copySlow(ctx context.Context, m rules.SlowMessage, p pendingMessage) error {
	c, _, err := s.topicFor(ctx, m.Topic, true)
	if c == nil || err != nil {
		return err
	}
	left := rules.MaxSteps
	turn := turns.Begin(ctx)
	picks, more, err := func() ([]pick, bool, error) {
		defer turn.End()
		return c.PickSome(p.MessageContent, p.at, p.handed, p.batchSize(), &left, true, turn)
	}()
	if err != nil {
		return err
	}
	_, err = db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		topic, found, err := entity.Topic(t.Conn, m.Topic)
		if err != nil || !found || topic.Version != c.Version {
			return struct{}{}, err
		}
		now, found, err := readPending(t.Conn, m.Seq)
		if err != nil || !found || now.handed != p.handed {
			return struct{}{}, err
		}
		first := false
		_, err = t.Prep(sqlNextPending).Int(int64(topic.Subqueue(false))).Int(pendingFlow).One(func(r driver.Row) { first = r.Int(0) == m.Seq })
		if err != nil || !first {
			return struct{}{}, err
		}
		if err := t.postpone(m.Seq, t.Now); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, t.fanOut.copyBatch(m.Seq, now, picks, more)
	})
	return err
}
