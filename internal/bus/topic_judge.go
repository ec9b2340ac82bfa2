package bus

import (
	"context"
	"errors"
	"sync"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/turns"
)

// Rules are judged by whoever sends, before the transaction that stores the copies: rules may take long, and that
// transaction keeps everybody else waiting. The transaction compares the topic's version with that of the rules that were
// asked, and has them asked again if it is another.

const (
	// judgeTries is how often a send is judged before its transaction if the topic changes each time.
	judgeTries = 4
	// maxKnownTopics is of how many topics a process remembers the rules.
	maxKnownTopics = 10_000
)

// errTopicChanged ends a transaction whose messages were judged by rules that no longer stand.
var errTopicChanged = forebay.Errorf(forebay.CodeUnavailable, "the topic is being changed; try again")

// topicRules are the topics whose rules a process has ready. It is safe for concurrent use.
type topicRules struct {
	mu        sync.RWMutex
	of        map[int64]*compiledTopic
	former    map[int64]*compiledTopic // as they were before their latest change
	compiling map[int64]chan struct{}  // closed when whoever compiles one is done
}

// enter waits until nobody else compiles the topic's rules.
func (r *topicRules) enter(ctx context.Context, no int64) (leave func(), err error) {
	for {
		r.mu.Lock()
		other := r.compiling[no]
		if other == nil {
			if r.compiling == nil {
				r.compiling = map[int64]chan struct{}{}
			}
			done := make(chan struct{})
			r.compiling[no] = done
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.compiling, no)
				close(done)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// get returns what is known of the topic, of whatever version; nil: nothing.
func (r *topicRules) get(no int64) *compiledTopic {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.of[no]
}

func (r *topicRules) put(c *compiledTopic) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil || len(r.of)+len(r.former) >= maxKnownTopics {
		r.of, r.former = map[int64]*compiledTopic{}, map[int64]*compiledTopic{}
	}
	if known := r.of[c.topic.No]; known == nil || known.topic.Version < c.topic.Version {
		r.of[c.topic.No] = c
		delete(r.former, c.topic.No)
	}
}

// latest returns what was known last of the topic, though it may have changed since; nil: nothing.
func (r *topicRules) latest(no int64) *compiledTopic {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if c := r.of[no]; c != nil {
		return c
	}
	return r.former[no]
}

func (r *topicRules) forget(no int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.of[no]; c != nil {
		r.former[no] = c
		delete(r.of, no)
	}
}

// judgement is what a topic of that version makes of the messages of one call.
type judgement struct {
	version int64
	picks   [][]picked
	made    spread
}

// rows is how many rows so many messages become in one transaction: those with many copies wait in the topic.
func (j *judgement) rows(messages int) int {
	if j == nil || j.inParts() {
		return messages
	}
	for _, picks := range j.picks {
		if len(picks) <= partCopies {
			messages += len(picks)
		}
	}
	return messages
}

// judge asks the rules of a topic, all or none of the messages. With fresh it reads the topic's version first; a refusal holds
// for the topic as it stands in any case. It returns nil if there is no such topic.
func (s *Store) judge(ctx context.Context, no int64, messages []MessageContent, fresh bool) (*judgement, error) {
	c := s.topics.get(no)
	for {
		if fresh || c == nil {
			known, err := s.readTopic(ctx, no)
			if known == nil || err != nil {
				return nil, err
			}
			c, fresh = known, true
		}
		j, err := c.judge(ctx, messages, s.Writer.Conn.Now())
		var refused *forebay.Error
		if fresh || !errors.As(err, &refused) {
			return j, err
		}
		now, readErr := s.readTopic(ctx, no)
		switch {
		case now == nil || readErr != nil:
			return nil, readErr
		case now.topic.Version == c.topic.Version:
			return nil, err
		}
		c, fresh = now, true
	}
}

func (c *compiledTopic) judge(ctx context.Context, messages []MessageContent, at int64) (*judgement, error) {
	j := &judgement{version: c.topic.Version, picks: make([][]picked, len(messages))}
	turn := turns.Begin(ctx)
	defer turn.End()
	for i := range messages {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		left := maxSteps - j.made.steps
		before := left
		var err error
		j.picks[i], err = c.pick(&messages[i], at, &j.made, &left, turn)
		if j.made.steps += before - left; err != nil {
			return nil, err
		}
	}
	return j, nil
}

// readTopic returns the topic with its rules as they stand, nil if there is none.
func (s *Store) readTopic(ctx context.Context, no int64) (*compiledTopic, error) {
	// Of several who need them one compiles the rules.
	leave, err := s.topics.enter(ctx, no)
	if err != nil {
		return nil, err
	}
	defer leave()
	var c *compiledTopic
	known := false
	err = s.Read(ctx, func(r driver.Conn) error {
		for {
			topic, found, err := topicNo(r, no)
			if c = nil; err != nil || !found {
				return err
			}
			if c = s.topics.get(no); c != nil && c.topic.Version == topic.Version {
				known = true
				return nil
			}
			if c, err = readRules(r, topic); err != nil {
				return err
			}
			// What is read by several statements is of one version if that is the same afterwards.
			after, found, err := topicNo(r, no)
			if err != nil || found && after.Version == topic.Version {
				return err
			}
			if err := r.Limit(); err != nil {
				return err
			}
		}
	})
	if c == nil || known || err != nil {
		return c, err
	}
	// This takes long, so the connection is for others.
	turn := turns.Begin(ctx)
	defer turn.End()
	if err := c.compile(s.topics.latest(no), turn); err != nil {
		return nil, err
	}
	s.topics.put(c)
	return c, nil
}

func topicNo(c driver.Conn, no int64) (topic MessageQueue, found bool, err error) {
	found, err = c.Prep(sqlTopicNo).Int(no).One(func(r driver.Row) { topic = readMessageQueue(r) })
	return topic, found, err
}

// activateSlow judges a scheduled message and then activates it, unless it or its topic has changed meanwhile.
func (s *Store) activateSlow(ctx context.Context, m slowMessage) error {
	var a arrival
	var p part
	waits := false
	err := s.Read(ctx, func(c driver.Conn) (err error) {
		if p, waits, err = partNo(c, m.seq); err != nil || waits {
			a = p.arrival
			return err
		}
		a, err = arrivalOf(c, m.seq, c.Now())
		return err
	})
	if err != nil || a.MessageContent == nil {
		return err
	}
	if waits {
		return s.handOutSlow(ctx, m, p)
	}
	j, err := s.judge(ctx, m.topic, []MessageContent{*a.MessageContent}, true)
	if j == nil || err != nil {
		return err
	}
	_, err = db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		topic, found, err := topicNo(t.Conn, m.topic)
		if err != nil || !found || topic.Version != j.version {
			return struct{}{}, err
		}
		waits, err := t.any("SELECT 1 FROM messages WHERE seq = ? AND lane + 0 = ? AND rank = ?", m.seq, int64(topic.Subqueue(false)), scheduledRank)
		if err != nil || !waits {
			return struct{}{}, err
		}
		a := a // the transaction may be tried again
		made := j.made
		a.picks, a.spread = j.picks[0], &made
		return struct{}{}, t.makeActive(topic, m.seq, a)
	})
	return err
}
