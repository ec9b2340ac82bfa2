package bus

import (
	"cmp"
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// Flows of plain messages. Messages for receivers have flow 0. In a queue that requires sessions
// each session has a flow of its own, so that one index finds its next message.
const (
	scheduledFlow    = entity.ScheduledFlow
	pendingFlow      = entity.PendingFlow
	firstSessionFlow = 16
)

const sqlWaiting = "SELECT 1 FROM messages WHERE subqueue = ? AND flow = 0 AND visible_at <= ? LIMIT 1"

// Send stores the messages, all or none. It returns their sequence numbers. A duplicate is
// dropped, and gets the number of the message that came first.
func (s *Store) Send(ctx context.Context, q MessageQueue, messages []MessageContent) (seqs []int64, err error) {
	size := 0
	for i := range messages {
		size += int(messages[i].Size())
	}
	for try := 1; ; try++ {
		var judged *judgement
		if q.IsTopic && try <= judgeTries { // later tries judge in the transaction, within narrower limits
			if judged, err = s.judge(ctx, q.No, messages, try > 1); err != nil {
				return nil, err
			}
		}
		var all sent
		all, err = sendJudged(ctx, s, q, messages, size, judged)
		if err == nil && all.pending && len(messages) > 0 {
			s.makeCopies(ctx, q, all, judged)
		}
		seqs = all.seqs
		if !topicChanged(err) || judged == nil {
			return seqs, err
		}
	}
}

// sendJudged is Send for messages that a topic's rules have judged. It returns errTopicChanged,
// and stores nothing, if the topic has changed since.
func sendJudged(ctx context.Context, s *Store, q MessageQueue, messages []MessageContent, size int, judged *judgement) (sent, error) {
	rows := judged.Rows(len(messages))
	o := db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: rows, Numbers: rows + forwards(q, len(messages), judged), Size: size, Local: true, Interleaves: true,
		Asks: func() []driver.Prefetch { return prefetchSend(q, messages, judged) }}
	return db.TransactIn(ctx, Key, s.Writer, o, func(t *Tx) (sent, error) {
		one := []sending{{MessageQueue: q, messages: messages, judged: judged, bySender: true}}
		if err := t.arrivals.check(&one[0]); err != nil {
			return sent{}, err
		}
		err := t.arrivals.sendAll(one)
		return one[0].sent, err
	})
}

// sending is what one operation sends to a queue or a topic.
type sending struct {
	MessageQueue
	messages []MessageContent
	numbers  []Number   // of messages that are scheduled, taken before; nil: none were
	judged   *judgement // nil: the transaction judges
	bySender bool       // the sender makes the copies that wait in the topic
	picks    [][]pick   // copies in the topic, once checked
	fanOut   *rules.FanOut
	sent     sent
}

// goesOn reports whether the messages do not stay in the queue.
func (s *sending) goesOn() bool { return s.IsTopic || s.ForwardTo != "" }

// number returns the number that was taken before for message i; 0: none.
func (s *sending) number(i int) Number {
	if s.numbers == nil {
		return Number{}
	}
	return s.numbers[i]
}

// check refuses what cannot be sent, and changes nothing. It judges by the topic's rules.
func (t *arrivalTx) check(s *sending) error {
	// As it stands now: the caller may remember older settings.
	q, found, err := t.MessageQueue(s.No)
	if err != nil {
		return err
	}
	if !found {
		return entity.ErrNoQueue
	}
	if !q.Status.Sends() { // even if there is no message
		return q.ErrSendDisabled()
	}
	s.MessageQueue = q
	for i := range s.messages {
		if err := q.CheckMessage(&s.messages[i]); err != nil {
			return err
		}
	}
	if s.picks = make([][]pick, len(s.messages)); !q.IsTopic {
		return nil
	}
	return t.Alone(func() (err error) { // for what a transaction judges is counted
		s.picks, s.fanOut, err = t.Topics.judged(q, s.messages, s.judged)
		return err
	})
}

// sendAll sends what was checked.
func (t *arrivalTx) sendAll(list []sending) error {
	var stay, goOn []*sending
	for i := range list {
		if list[i].goesOn() {
			goOn = append(goOn, &list[i])
		} else {
			stay = append(stay, &list[i])
		}
	}
	if err := t.Interleave(len(stay), func(i int) error { return t.sendToQueue(stay[i]) }); err != nil || len(goOn) == 0 {
		return err
	}
	if err := t.foreseeSends(goOn); err != nil {
		return err
	}
	return t.Alone(func() error { // for what a transaction makes of topics is counted
		for i, s := range goOn {
			if err := t.sendOn(s, i > 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// sendToQueue sends to a queue that keeps what comes.
func (t *arrivalTx) sendToQueue(s *sending) error {
	sessions, err := t.sessions.create(s.MessageQueue, s.messages)
	if err != nil {
		return err
	}
	s.sent.seqs = make([]int64, len(s.messages))
	return t.Interleave(len(s.messages), func(i int) (err error) {
		m := &s.messages[i]
		s.sent.seqs[i], err = t.add(s.MessageQueue, arrival{MessageContent: m, number: s.number(i), session: sessions[m.SessionID]})
		return err
	})
}

// foreseeSends fetches what sendOn needs.
func (t *arrivalTx) foreseeSends(list []*sending) error {
	if !t.W.Shared() {
		return nil
	}
	err := t.Interleave(len(list), func(i int) (err error) {
		if list[i].ForwardTo != "" {
			_, err = t.forwarding.holds(list[i].MessageQueue)
		}
		return err
	})
	if err != nil {
		return err
	}
	numbers := 0
	for _, s := range list {
		numbers += forwards(s.MessageQueue, len(s.messages), s.judged)
	}
	return t.foresee(numbers, func(f *foresight) {
		for _, s := range list {
			f.numbers += int(driver.BoolInt(s.IsTopic && s.DuplicateWindow > 0))
			for i := range s.messages {
				f.into(s.MessageQueue, &s.messages[i], s.picks[i], 0)
			}
		}
	})
}

// sendOn sends to a topic, or a queue that forwards. behind: the operation has sent others before.
func (t *arrivalTx) sendOn(s *sending, behind bool) (err error) {
	q := s.MessageQueue
	s.sent.seqs = make([]int64, len(s.messages))
	if q.IsTopic && q.DuplicateWindow > 0 {
		if s.sent.below, err = t.Queue.NewSeq(); err != nil {
			return err
		}
	}
	waits := q.ForwardTo != "" && !q.Status.Receives()     // until somebody may take it from there
	if q.ForwardTo != "" && !q.RequiresSession && !waits { // behind what waits there already
		if waits, err = t.forwarding.holds(q); err == nil && waits {
			err = t.due.markQueue(q.No, t.Now)
		}
		if err != nil {
			return err
		}
	}
	for i := range s.messages {
		// The transaction has made as many copies as it should. The rest waits in the queue.
		if !waits && (behind || i > 0) && q.ForwardTo != "" && !q.RequiresSession && t.copied.Full() {
			if waits, err = true, t.due.markQueue(q.No, t.Now); err != nil {
				return err
			}
			t.forwarding.noteHeld(q.Subqueue(false))
		}
		a := arrival{MessageContent: &s.messages[i], number: s.number(i), picks: s.picks[i], fanOut: s.fanOut, waits: waits,
			inBatches: s.judged.InBatches(), bySender: s.bySender && q.IsTopic}
		if s.sent.seqs[i], err = t.add(q, a); err != nil {
			return err
		}
	}
	s.sent.pending = t.fanOut.pending[q.No]
	return nil
}

// sent is the result of a send.
type sent struct {
	seqs    []int64
	below   int64 // messages with higher numbers are no duplicates
	pending bool  // messages wait in the topic for their copies
}

// ErrNoSessionID refuses a message for a queue that requires sessions.
var ErrNoSessionID = entity.ErrNoSessionID

// arrivalTx enters messages into queues and topics.
type arrivalTx struct {
	*Tx
	ids map[messageName]*seenID // of messages; nil: not read yet
}

// arrival is a message on its way into a queue: sent, activated or forwarded.
type arrival struct {
	*MessageContent
	number    Number // taken before, should it be scheduled
	first     int64  // its first number; 0: none yet
	hops      int
	source    string // the queue it was dead-lettered in
	why       DeadLettering
	fanOut    *rules.FanOut // copies that topics have made of it; nil: none yet
	inBatches bool          // it waits in the topic for its copies, however few
	bySender  bool          // its sender makes the copies
	waits     bool          // it stays in the queue for now, although the queue forwards
	picks     []pick        // its copies in the topic; nil: not judged yet
	share     *sharing      // the body it shares with other copies; nil: none
	session   int64         // number of its session in the queue; 0: not created yet
}

// add gives a message a number in the queue and enters it there.
func (t *arrivalTx) add(q MessageQueue, a arrival) (seq int64, err error) {
	if driver.Millis(a.ScheduledAt) > t.Now {
		seq = a.number.Seq
	} else { // it is active, under a later number
		a.first, a.number = max(a.first, a.number.Seq), Number{}
	}
	if seq == 0 {
		if seq, err = t.Queue.NewSeq(); err != nil {
			return 0, err
		}
	}
	if q.Topic == 0 { // copies do not keep a subscription from being idle
		if err := t.used(q); err != nil {
			return 0, err
		}
	}
	if q.DuplicateWindow > 0 {
		if first, err := t.remember(q, a.MessageID, seq); err != nil || first != seq {
			return first, err
		}
	}
	if driver.Millis(a.ScheduledAt) > t.Now {
		return seq, t.schedule(q, seq, a)
	}
	return seq, t.enter(q, seq, a)
}

// schedule stores a message of that number that becomes active at its time.
func (t *arrivalTx) schedule(q MessageQueue, seq int64, a arrival) error {
	at := driver.Millis(a.ScheduledAt)
	t.DueBy(at)
	return t.insert(q, seq, a, position{subqueue: q.Subqueue(false), flow: scheduledFlow, visible: at, dueAt: at})
}

// enter makes a message of that number active in the queue, or forwards it.
func (t *arrivalTx) enter(q MessageQueue, seq int64, a arrival) error {
	sessionNo := a.session
	waits := a.waits
	a.session, a.waits = 0, false // these do not hold for the queues it is forwarded to
	if q.IsTopic {
		return t.fanOut.start(q, seq, a)
	}
	if q.ForwardTo != "" && !waits && q.Status.Receives() {
		return t.forwarding.send(q, seq, a, q.ForwardTo)
	}
	if q.RequiresSession && a.SessionID == "" {
		return t.forwarding.arriveDead(q, seq, a, DeadLettering{Reason: forebay.ReasonNoSession, Description: "a queue that requires sessions takes no message whose session id is null"})
	}
	st := position{subqueue: q.Subqueue(false), visible: t.Now}
	if q.RequiresSession {
		no, err := t.sessions.numberOf(q, a.SessionID, sessionNo)
		if err != nil {
			return err
		}
		st.flow, st.visible = firstSessionFlow+no, sessionFree
	}
	if ttl := message.Lifetime(q.DefaultTTL, a.TTL); ttl > 0 {
		st.expiresAt = t.Now + ttl.Milliseconds()
		st.dueAt = st.expiresAt
		t.DueBy(st.dueAt)
	}
	if st.flow == 0 {
		t.Queue.WakeAt(st.subqueue, t.Now)
	}
	return t.insert(q, seq, a, st)
}

// position is where a message is in its queue.
type position struct {
	subqueue  queue.Subqueue
	flow      int64
	visible   int64
	expiresAt int64 // 0: never
	dueAt     int64 // when it is due; 0: never
	handed    int64 // of a pending message: see topic_fanout.go
	copies    int64
}

const sqlInsertBody = `
INSERT INTO bodies (seq, subqueue, enqueued_at, message_id, correlation_id, subject, to_, reply_to, content_type, properties, is_text, body,
  session_id, reply_to_session_id, partition_key, ttl, scheduled_at, expires_at, due_at, enqueued_seq, hops,
  dead_letter_source, dead_letter_reason, dead_letter_description, shared, handed, copies, amqp)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

func (t *arrivalTx) insert(q MessageQueue, seq int64, a arrival, st position) error {
	own, err := t.shares(a)
	if err != nil {
		return err
	}
	err = t.Prep(sqlInsertBody).Int(seq).Int(int64(st.subqueue)).Int(cmp.Or(a.number.at, t.Now)).Text(a.MessageID).TextOrNull(a.CorrelationID).TextOrNull(a.Subject).
		TextOrNull(a.To).TextOrNull(a.ReplyTo).TextOrNull(a.ContentType).Blob(own.properties).Int(driver.BoolInt(a.Text)).Blob(own.body).
		TextOrNull(a.SessionID).TextOrNull(a.ReplyToSessionID).TextOrNull(a.PartitionKey).IntOrNull(a.TTL.Milliseconds()).
		IntOrNull(driver.Millis(a.ScheduledAt)).IntOrNull(st.expiresAt).IntOrNull(st.dueAt).IntOrNull(a.first).Int(int64(a.hops)).
		TextOrNull(a.source).TextOrNull(a.why.Reason).TextOrNull(a.why.Description).IntOrNull(own.shared).
		IntOrNull(st.handed).IntOrNull(st.copies).Blob(own.amqp).Exec()
	if err != nil {
		return err
	}
	return t.Prep("INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant) VALUES (?, ?, ?, ?, ?, ?)").
		Int(seq).Int(int64(st.subqueue)).Int(st.flow).Int(st.visible).Int(a.Size()).Int(q.Tenant).Exec()
}
