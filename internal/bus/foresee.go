package bus

import (
	"slices"

	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// What a transaction makes of topics and forwarding is counted in memory. So messages are entered
// by [Tx.Alone], where each statement with an answer would cost a round trip. What they need on
// their way is therefore fetched before, for all that wait at the same time.

// foresight is what messages need to know that are about to enter queues and topics.
type foresight struct {
	*Tx
	asks    []driver.Prefetch
	answers []func() error // take what was asked into the transaction's memory
	asked   map[driver.RowName]bool
	walked  int // steps of messages on their way
	numbers int // that the messages take where they are forwarded to
	taken   int // of these, those that the transaction has
}

// maxForeseen bounds how much is asked ahead at once, and how far messages are followed: in a
// circle of topics they multiply with each hop. What comes after is asked when it is needed.
const maxForeseen = 4096

// foresee fetches what messages need that are about to be entered. each calls into or on for
// them. Of the numbers that they take, so many are there. There is nothing to do where a
// statement costs no round trip.
func (t *Tx) foresee(numbers int, each func(*foresight)) error {
	if !t.W.Shared() {
		return nil
	}
	f := foresight{Tx: t, asked: map[driver.RowName]bool{}, taken: numbers}
	return f.fetch(each)
}

func (f *foresight) fetch(each func(*foresight)) error {
	for range maxHops { // rules are known once targets are, and their targets then
		f.numbers, f.walked = 0, 0
		each(f)
		f.takeNumbers(f.numbers)
		if len(f.asks) == 0 {
			return nil
		}
		if err := f.Prefetch(f.asks); err != nil {
			return err
		}
		if err := f.answer(); err != nil {
			return err
		}
	}
	return nil
}

// answer takes what was fetched into the transaction's memory.
func (f *foresight) answer() error {
	answers := f.answers
	f.asks, f.answers = nil, nil
	for _, answer := range answers {
		if err := answer(); err != nil {
			return err
		}
	}
	return nil
}

func (f *foresight) ask(answer func() error, queries ...driver.Prefetch) {
	if name := queries[0].Row; !f.asked[name] && len(f.asks) < maxForeseen {
		f.asked[name] = true
		f.asks, f.answers = append(f.asks, queries...), append(f.answers, answer)
	}
}

// into foresees a message that enters the queue, or the topic with these copies, if they are
// known. It was forwarded so often in this transaction.
func (f *foresight) into(q MessageQueue, m *MessageContent, picks []pick, hops int) {
	if f.walked++; f.walked > maxForeseen {
		return
	}
	if q.DuplicateWindow > 0 && f.arrivals.ids[messageName{q.No, m.MessageID}] == nil {
		f.ask(func() error { _, err := f.arrivals.seen(q.No, m.MessageID); return err }, prefetchID(q.No, m.MessageID))
	}
	switch {
	case driver.Millis(m.ScheduledAt) > f.Now:
	case q.IsTopic:
		f.copies(q, m, picks, hops)
	case q.ForwardTo != "":
		f.on(q.ForwardTo, m, hops)
	case q.RequiresSession && m.SessionID != "":
		if f.sessions.known[messageName{q.No, m.SessionID}] == nil {
			f.ask(func() error { _, err := f.sessions.named(q.No, m.SessionID); return err }, prefetchSession(q.No, m.SessionID))
		}
	case q.RequiresSession:
		f.on(q.ForwardDeadLettersTo, m, hops)
	}
}

// on foresees a message that is forwarded to the queue of that name.
func (f *foresight) on(to string, m *MessageContent, hops int) {
	if to == "" || hops == maxHops {
		return
	}
	f.numbers++
	if target, known := f.forwarding.targets[to]; known {
		f.into(target, m, nil, hops+1)
		return
	}
	f.ask(func() error { _, _, err := f.forwarding.target(to); return err }, prefetchTargets(to))
}

// copies foresees the copies of a message. Where it is not judged yet, each subscription may get
// one.
func (f *foresight) copies(topic MessageQueue, m *MessageContent, picks []pick, hops int) {
	if !f.fanOut.copiesPending(topic) && len(picks) <= rules.BatchCopies {
		f.copiesOf(topic, m, picks, hops)
	}
}

func (f *foresight) copiesOf(topic MessageQueue, m *MessageContent, picks []pick, hops int) {
	for _, p := range picks {
		if p.Why != nil {
			f.on(p.To.Queue.ForwardDeadLettersTo, p.Content, hops)
		} else {
			f.into(p.To.Queue, p.Content, nil, hops)
		}
	}
	if picks != nil {
		return
	}
	c := f.Topics.known(topic)
	if c == nil {
		f.ask(func() error { _, err := f.Topics.ready(topic); return unlessNotReady(err) }, prefetchRules(topic.No)...)
		return
	}
	for i := range c.Subscriptions {
		if f.walked >= maxForeseen {
			return
		}
		f.numbers++
		f.into(c.Subscriptions[i].Queue, m, nil, hops)
	}
}

const sqlNumbersAhead = "SELECT nextval('seqs') FROM generate_series(1, ?) WHERE ? <> 0"

// takeNumbers has the transaction take sequence numbers, with what is asked, until it has so many.
func (f *foresight) takeNumbers(all int) {
	n := min(all, maxForeseen) - f.taken
	if n <= 0 {
		return
	}
	f.taken += n
	f.numbered++
	call := f.numbered
	ask := driver.NewPrefetch(sqlNumbersAhead, driver.RowName{Of: "seqs", No: call}).Int(int64(n)).Int(call)
	f.ask(func() error {
		defer func() { slices.Sort(f.Queue.Seqs) }() // another may have taken later ones meanwhile
		return f.Prep(sqlNumbersAhead).Int(int64(n)).Int(call).Each(func(r driver.Row) error {
			f.Queue.Seqs = append(f.Queue.Seqs, r.Int(0))
			return nil
		})
	}, ask)
}

// shared is a query whose answer is for all that ask the same. It is fresher in the transaction's
// memory, once it is there.
func shared(q driver.Prefetch) driver.Prefetch {
	q.Shared = true
	return q
}

func prefetchID(queue int64, id string) driver.Prefetch {
	return shared(driver.NewPrefetch(sqlMessageID, driver.RowName{Of: "message_ids", No: queue, ID: id}).Int(queue).Text(id))
}

func prefetchSession(queue int64, id string) driver.Prefetch {
	return shared(driver.NewPrefetch(sqlSessionNumber, driver.RowName{Of: "session numbers", No: queue, ID: id}).Int(queue).Text(id))
}

func prefetchTargets(name string) driver.Prefetch {
	return shared(driver.NewPrefetch(entity.SQLTargets, driver.RowName{Of: "targets", ID: name}).Text(name))
}

func prefetchRules(topic int64) []driver.Prefetch {
	row := driver.RowName{Of: "rules", No: topic}
	return []driver.Prefetch{
		shared(driver.NewPrefetch(sqlManyRules, row).Int(topic).Int(txRules + 1)),
		shared(driver.NewPrefetch(entity.SQLSubscriptions, row).Int(topic)),
		shared(driver.NewPrefetch(entity.SQLTopicRules, row).Int(topic)),
	}
}

// prefetchMessage is what arrivalOf asks.
func prefetchMessage(seq int64) driver.Prefetch {
	return driver.NewPrefetch(sqlWholeMessage, queue.MessageRow(seq)).Int(seq)
}

// forwards counts the messages, and copies, that are forwarded by the queue they are sent to.
func forwards(q MessageQueue, messages int, judged *judgement) (n int) {
	if q.ForwardTo != "" {
		n = messages
	}
	if judged != nil && !judged.InBatches() {
		for _, copies := range judged.Copies {
			for _, c := range copies[:min(len(copies), rules.BatchCopies)] {
				n += int(driver.BoolInt(c.To.Queue.ForwardTo != ""))
			}
		}
	}
	return n
}

// prefetchSend is what the sender of messages asks with the beginning of the transaction.
func prefetchSend(q MessageQueue, messages []MessageContent, judged *judgement) []driver.Prefetch {
	asks := []driver.Prefetch{entity.Prefetch(q.No)}
	enters := func(q MessageQueue, m *MessageContent) {
		switch {
		case q.ForwardTo != "":
			asks = append(asks, prefetchTargets(q.ForwardTo))
		case q.RequiresSession && m.SessionID != "":
			asks = append(asks, prefetchSession(q.No, m.SessionID))
		}
	}
	if q.ForwardTo != "" {
		asks = append(asks, prefetchHolds(q.Subqueue(false)))
	}
	for i := range messages {
		if q.DuplicateWindow > 0 {
			asks = append(asks, prefetchID(q.No, messages[i].MessageID))
		}
		if !q.IsTopic {
			enters(q, &messages[i])
		}
	}
	if judged != nil && !judged.InBatches() {
		for _, copies := range judged.Copies {
			for _, c := range copies[:min(len(copies), rules.BatchCopies)] {
				enters(c.To.Queue, c.Content)
			}
		}
	}
	return asks
}
