package bus

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/turns"
)

// A message of which a topic would make too many copies for one transaction is stored once, in the topic, and its copies are made in
// several transactions, a part in each. So is what comes to the topic meanwhile, for no message overtakes another. The sender makes the
// copies before it has its answer; should it not come to the end, the writer does. The row of the message says which subscriptions have
// theirs: copies are made in the order of the subscriptions' numbers, all that one gets in one transaction.

const (
	// partCopies is how many copies of a message one transaction makes, but for those that one subscription gets more.
	partCopies = 500
	// handOutTime is how long a sender has for one transaction, in milliseconds, before the writer helps.
	handOutTime = 10_000
	// partPause is how long the writer leaves a message alone whose rules are judged, or made ready, outside of transactions, in
	// milliseconds.
	partPause = 1_000
)

// partMost is how many copies of a message one transaction makes.
func (a *arrival) partMost() int {
	size := a.Size()
	if a.share != nil || len(a.Body)+len(a.Properties) >= sharedLeast {
		size -= int64(len(a.Body))
	}
	return int(min(partCopies, max(1, fullCopyBytes/max(1, size))))
}

// inParts reports whether messages that were judged so are too much for one transaction.
func (j *judgement) inParts() bool { return j != nil && len(j.picks) > 1 && j.made.copies > fullCopies }

// handsOut reports whether messages wait in the topic for their copies.
func (t *Tx) handsOut(topic MessageQueue) bool { return topic.HandsOut || t.topics.parts[topic.No] }

// storePart stores a message in the topic that has many copies to make of it, or others before it.
func (t *Tx) storePart(topic MessageQueue, seq int64, a arrival, picks int) error {
	at := t.Now
	if a.bySender {
		at += handOutTime
	}
	t.DueBy(at)
	copies := int64(0)
	if a.spread != nil {
		copies = int64(max(a.spread.copies-picks, 0))
	}
	a.shareAmong(seq, partCopies)
	if t.topics.parts == nil {
		t.topics.parts = map[int64]bool{}
	}
	t.topics.parts[topic.No] = true
	return t.insertArrival(topic, seq, a, standing{subqueue: topic.Subqueue(false), rank: partRank, dueAt: at, handed: 1, copies: copies})
}

// handOut makes the copies of messages that wait in a topic, and of those before them. What it leaves, for the database fails or the
// caller is gone, the writer does.
func (s *Store) handOut(ctx context.Context, topic MessageQueue, sent sent, judged *judgement) {
	picks := map[int64][]picked{}
	if judged != nil {
		for i, seq := range sent.seqs {
			if picks[seq] == nil && seq > sent.below { // else it is a duplicate
				picks[seq] = bySubscription(judged.picks[i])
			}
		}
	}
	for last := slices.Max(sent.seqs); ; {
		next, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: topic.Tenant, Rows: partCopies}, func(t *Tx) (int64, error) {
			q, found, err := t.MessageQueue(topic.No)
			if err != nil || !found {
				return 0, err // they go with it
			}
			of := picks
			if judged == nil || judged.version != q.Version {
				of = nil
			}
			next, err := t.handOutSome(q, of)
			if errors.Is(err, errSteps) {
				t.judgeLater(err, slowMessage{q.Tenant, q.No, next})
				return 0, nil
			}
			return next, err
		})
		if err != nil || next == 0 || next > last {
			return
		}
	}
}

// bySubscription returns the picks of a message in the order in which the copies are made.
func bySubscription(picks []picked) []picked {
	picks = slices.Clone(picks)
	slices.SortStableFunc(picks, func(a, b picked) int { return cmp.Compare(a.sub.No, b.sub.No) })
	return picks
}

// Visible is 0 for all of these.
const sqlNextPart = "SELECT seq FROM messages WHERE lane = ? AND rank = ? ORDER BY visible, seq LIMIT 1"

// handOutSome makes some copies of what has waited longest in the topic. picks are what is known of some by their numbers. It returns
// the number of the next that has copies to make, 0: there is none. If that takes too long to judge it returns errSteps.
func (t *Tx) handOutSome(topic MessageQueue, picks map[int64][]picked) (next int64, err error) {
	for made := 0; ; {
		next = 0
		_, err := t.Prep(sqlNextPart).Int(int64(topic.Subqueue(false))).Int(partRank).One(func(r driver.Row) { next = r.Int(0) })
		if err != nil || next == 0 || made >= partCopies || made > 0 && t.copied.full() {
			return next, err
		}
		n, err := t.handOutPart(topic, next, picks[next])
		if err != nil {
			if made > 0 && errors.Is(err, errSteps) {
				err = nil
			}
			return next, err
		}
		made += n
	}
}

// part is a message that waits in its topic, and how far it has come.
type part struct {
	arrival
	seq, handed, copies, at int64
}

// partNo reads such a message. It is not found once it has all its copies.
func partNo(c driver.Conn, seq int64) (p part, found bool, err error) {
	p.seq = seq
	found, err = c.Prep("SELECT handed, copies, enqueued_at FROM bodies WHERE seq = ? AND handed IS NOT NULL").Int(seq).One(func(r driver.Row) {
		p.handed, p.copies, p.at = r.Int(0), r.Int(1), r.Int(2)
	})
	if err == nil && found {
		p.arrival, err = arrivalOf(c, seq, p.at)
	}
	return p, found, err
}

// handOutPart makes as many copies of a message as one transaction should and returns how many, at least 1. What is to be made is judged
// unless it is known.
func (t *Tx) handOutPart(topic MessageQueue, seq int64, picks []picked) (made int, err error) {
	p, found, err := partNo(t.Conn, seq)
	if err != nil || !found {
		return 1, err
	}
	more := false
	if picks == nil {
		picks, more, err = t.pickPart(topic, &p)
	} else {
		picks, more = nextPart(picks, p.handed, p.partMost())
	}
	if err != nil {
		return 0, err
	}
	return len(picks) + 1, t.copyPart(seq, p, picks, more)
}

// copyPart makes these copies of a message; more: it has others to make.
func (t *Tx) copyPart(seq int64, p part, picks []picked, more bool) error {
	a := p.arrival
	if a.share != nil && a.share.no == seq {
		a.share.properties = a.Properties
	}
	made := int(p.copies) + len(picks)
	a.spread = &spread{copies: made, bytes: int64(made) * a.Size()}
	if err := t.copyTo(picks, seq, a); err != nil {
		return err
	}
	if !more {
		return t.DeleteMessage(seq)
	}
	return t.Prep("UPDATE bodies SET handed = ?, copies = ? WHERE seq = ?").Int(picks[len(picks)-1].sub.No + 1).Int(int64(a.spread.copies)).Int(seq).Exec()
}

// nextPart returns those of the picks, which stand in their order, that come after some subscriptions, and whether there are more.
func nextPart(picks []picked, handed int64, most int) (part []picked, more bool) {
	from, _ := slices.BinarySearchFunc(picks, handed, func(p picked, handed int64) int { return cmp.Compare(p.sub.No, handed) })
	picks = picks[from:]
	to := min(most, len(picks))
	for to < len(picks) && picks[to].sub.No == picks[to-1].sub.No {
		to++
	}
	return picks[:to], to < len(picks)
}

// pickPart chooses the next copies of a message, as far as judging them is for a transaction.
func (t *Tx) pickPart(topic MessageQueue, p *part) (picks []picked, more bool, err error) {
	c, err := t.readyTopic(topic)
	if errors.Is(err, errNotReady) {
		err = errSteps
	}
	if err != nil {
		return nil, false, err
	}
	if t.W.slow.has(slowMessage{topic.Tenant, topic.No, p.seq}) {
		return nil, false, errSteps
	}
	left := txSteps
	picks, more, err = c.pickPart(p, &left, false, nil)
	t.copied.steps += txSteps - left
	return picks, more, err
}

// pickPart chooses the next copies of a message. Where the steps that are left do not do for the rules of a subscription it goes on
// without that one, if it may, or ends with those before it, or with errSteps if they get nothing.
func (c *compiledTopic) pickPart(p *part, left *int, goesOn bool, turn *turns.Turn) (picks []picked, more bool, err error) {
	rest := &compiledTopic{topic: c.topic}
	for i := range c.subscriptions {
		if c.subscriptions[i].queue.No >= p.handed {
			rest.subscriptions = append(rest.subscriptions, c.subscriptions[i])
		}
	}
	slices.SortFunc(rest.subscriptions, func(a, b compiledSubscription) int { return cmp.Compare(a.queue.No, b.queue.No) })
	content := *p.MessageContent
	content.TTL = lifetime(c.topic.DefaultTTL, content.TTL)
	most := p.partMost()
	err = rest.selectCopies(&content, p.at, left, goesOn, turn, func(sub *MessageQueue, copied *MessageContent, why *DeadLettering) error {
		if len(picks) >= most && picks[len(picks)-1].sub.No != sub.No {
			return driver.ErrStop
		}
		picks = append(picks, picked{sub, copied, why})
		return nil
	})
	if errors.Is(err, driver.ErrStop) || errors.Is(err, errSteps) && len(picks) > 0 {
		return picks, true, nil
	}
	return picks, false, err
}

// tendPart makes copies in a topic where a message is due that has some to make: first of those before it.
func (t *Tx) tendPart(m dueMessage) error {
	topic, found, err := t.MessageQueue(m.subqueue.Queue())
	if err != nil {
		return err
	}
	if !found { // it is being deleted
		return t.DeleteMessage(m.seq)
	}
	at := t.Now
	switch next, err := t.handOutSome(topic, nil); {
	case errors.Is(err, errSteps):
		t.judgeLater(err, slowMessage{topic.Tenant, topic.No, next})
		at += partPause
	case err != nil:
		return err
	}
	t.DueBy(at)
	return t.Prep("UPDATE bodies SET due_at = ? WHERE seq = ?").Int(at).Int(m.seq).Exec()
}

// handOutSlow makes the next copies of a message that takes too long to judge for a transaction. What takes too long even so counts as
// what a rule cannot judge: no message keeps those behind it waiting.
func (s *Store) handOutSlow(ctx context.Context, m slowMessage, p part) error {
	c, err := s.readTopic(ctx, m.topic)
	if c == nil || err != nil {
		return err
	}
	left := maxSteps
	turn := turns.Begin(ctx)
	picks, more, err := func() ([]picked, bool, error) {
		defer turn.End()
		return c.pickPart(&p, &left, true, turn)
	}()
	if err != nil {
		return err
	}
	_, err = db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		topic, found, err := topicNo(t.Conn, m.topic)
		if err != nil || !found || topic.Version != c.topic.Version {
			return struct{}{}, err
		}
		now, found, err := partNo(t.Conn, m.seq)
		if err != nil || !found || now.handed != p.handed {
			return struct{}{}, err
		}
		first := false
		_, err = t.Prep(sqlNextPart).Int(int64(topic.Subqueue(false))).Int(partRank).One(func(r driver.Row) { first = r.Int(0) == m.seq })
		if err != nil || !first {
			return struct{}{}, err
		}
		t.DueBy(t.Now)
		if err := t.Prep("UPDATE bodies SET due_at = ? WHERE seq = ?").Int(t.Now).Int(m.seq).Exec(); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, t.copyPart(m.seq, now, picks, more)
	})
	return err
}
