package store

import (
	"context"
	"errors"
)

// A send whose copies are too many for one transaction is stored as it came, all or none of it, as messages that their topic is yet to
// hand out: they wait in it like scheduled ones. Then the sender hands them out, each with all its copies at once and as many in a transaction
// as that should make. Should it not come to the end, the writer does the rest as soon as they are due.

// handOutTime is how long a sender has for handing out, in milliseconds.
const handOutTime = 10_000

// inParts reports whether a topic is to hand out messages that were judged so in several transactions.
func (j *judgement) inParts() bool { return j != nil && len(j.picks) > 1 && j.made.copies > fullCopies }

// sendInParts is sendJudged for messages that are handed out afterwards.
func (s *Store) sendInParts(ctx context.Context, topic MessageQueue, messages []MessageContent, size int, judged *judgement) (seqs []int64, err error) {
	all, err := s.storeInParts(ctx, topic, messages, size, judged.version)
	if err != nil {
		return nil, err
	}
	s.handOut(ctx, topic, messages, all, judged)
	return all.seqs, nil
}

// parts are the numbers of messages that their topic is to hand out.
type parts struct {
	seqs  []int64
	below int64 // those that were not there before have higher ones
}

// storeInParts stores messages that are to be handed out.
func (s *Store) storeInParts(ctx context.Context, topic MessageQueue, messages []MessageContent, size int, version int64) (parts, error) {
	return transactIn(ctx, s, stageChange, topic.Tenant, len(messages), size, func(t *tx) (all parts, err error) {
		topic, found, err := t.messageQueue(topic.No)
		switch {
		case err != nil:
			return all, err
		case !found:
			return all, errNoQueue
		case topic.Version != version:
			return all, errTopicChanged
		}
		if all.below, err = t.newSeq(); err != nil {
			return all, err
		}
		all.seqs = make([]int64, len(messages))
		for i := range messages {
			if all.seqs[i], err = t.arrive(topic, arrival{MessageContent: &messages[i], inParts: true}); err != nil {
				return all, err
			}
		}
		return all, nil
	})
}

// handOut makes the messages active that are not scheduled for later. What it leaves, for the database fails or the caller is
// gone, becomes active by itself.
func (s *Store) handOut(ctx context.Context, topic MessageQueue, messages []MessageContent, all parts, judged *judgement) {
	for next := 0; next < len(messages); {
		n, err := s.handOutSome(ctx, topic, messages[next:], parts{all.seqs[next:], all.below}, judged.version, judged.picks[next:])
		switch next += n; {
		case errors.Is(err, errTopicChanged):
			again, err := s.judge(ctx, topic.No, messages[next:], true)
			if err != nil || again == nil {
				return
			}
			judged.version = again.version
			judged.picks = append(judged.picks[:next:next], again.picks...)
		case err != nil:
			return
		}
	}
}

// handOutSome hands out the first of the messages, as many as one transaction should, and returns how many. It returns
// errTopicChanged if they were judged by rules that no longer stand.
func (s *Store) handOutSome(ctx context.Context, topic MessageQueue, messages []MessageContent, all parts, version int64, picks [][]picked) (int, error) {
	return transact(ctx, s, stageChange, func(t *tx) (n int, err error) {
		topic, found, err := t.messageQueue(topic.No)
		switch {
		case err != nil:
			return 0, err
		case !found:
			return len(messages), nil // they go with it
		case topic.Version != version:
			return 0, errTopicChanged
		}
		for ; n < len(messages) && (n == 0 || !t.copied.full()); n++ {
			if all.seqs[n] <= all.below { // a duplicate of one that was there
				continue
			}
			due := int64(0)
			waits, err := t.prep(sqlHandOut).int(all.seqs[n]).int(int64(topic.Lane(false))).int(scheduledRank).one(func(r row) { due = r.int(0) })
			if err != nil {
				return 0, err
			}
			if !waits || due == 0 { // it is handed out already, or scheduled for later
				continue
			}
			if err := t.makeActive(topic, all.seqs[n], arrival{MessageContent: &messages[n], first: all.seqs[n], picks: picks[n]}); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
}

const sqlHandOut = `
SELECT CASE WHEN b.scheduled_at IS NULL OR b.scheduled_at <= b.enqueued_at THEN 1 ELSE 0 END
FROM messages m JOIN bodies b ON b.seq = m.seq WHERE m.seq = ? AND m.lane + 0 = ? AND m.rank = ?`
