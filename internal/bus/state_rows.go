package bus

import (
	"context"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// statuses has the statuses by their numbers in the column status. A number of
// receiveDisabled or more says that nobody may receive.
var statuses = []forebay.EntityStatus{forebay.EntityActive, forebay.EntitySendDisabled, forebay.EntityReceiveDisabled, forebay.EntityDisabled}

const receiveDisabled = 2

func statusNumber(s forebay.EntityStatus) int64 { return int64(max(0, slices.Index(statuses, s))) }

// readState reads the last columns of messageQueueColumns.
func readState(r driver.Row) entity.State {
	s := entity.State{Status: statuses[r.Int(19)&3], MaxMessage: r.Int(20), UserMetadata: r.Text(21), Attributes: r.Text(22), UpdatedAt: driver.FromMillis(r.Int(23))}
	if at := r.Int(24); at > 0 {
		s.AccessedAt = driver.FromMillis(at)
	}
	return s
}

// PutMode says whether a put may create an entity, change one, or do either.
type PutMode int

const (
	PutAny      PutMode = iota
	PutNew              // only create: ErrExists if there is one of that name, whatever the case
	PutExisting         // only change: ErrNoQueue, ErrNoTopic or ErrNoSubscription if there is none
)

// PutOptions say how an entity is put.
type PutOptions struct {
	Limit int // how many of its kind there may be
	Mode  PutMode
	Keep  entity.Keep // of an entity that exists
}

// ErrExists refuses to create an entity whose name is taken.
var ErrExists = &forebay.Error{Code: forebay.CodeConflict, Field: "name", Message: "there is a queue, topic or subscription of that name already"}

// check compares the mode with what is there.
func (o PutOptions) check(q MessageQueue, found bool) error {
	switch {
	case o.Mode == PutNew && found:
		return ErrExists
	case o.Mode != PutExisting || found:
		return nil
	case q.IsTopic:
		return ErrNoTopic
	case q.Topic != 0:
		return ErrNoSubscription
	}
	return ErrNoQueue
}

// checkFolded refuses a name that differs from another only in its case.
func (t *entityTx) checkFolded(q MessageQueue) error {
	_, found, err := entityFolded(t.Conn, q.Tenant, q.Name)
	if err == nil && found {
		err = ErrExists
	}
	return err
}

// sqlQueueFolded finds the entity of exactly a name, and the first by name of those that differ
// from it in case alone.
const sqlQueueFolded = messageQueueColumns + "AND tenant = ?1 AND name = ?2 UNION ALL SELECT * FROM (" +
	messageQueueColumns + "AND tenant = ?1 AND lower(name) = ?3 ORDER BY name LIMIT 1 + 0) bounded_folded"

func entityFolded(c driver.Conn, tenant int64, name string) (q MessageQueue, found bool, err error) {
	err = c.Prep(sqlQueueFolded).Int(tenant).Text(name).Text(entity.Fold(name)).Each(func(r driver.Row) error {
		if one := readMessageQueue(r); !found || one.Name == name {
			q, found = one, true
		}
		return nil
	})
	return q, found, err
}

// Folded returns a tenant's queue, topic or subscription by its name in any case. An exact name
// comes before others, and of these the first by name.
func (s EntityStore) Folded(ctx context.Context, tenant int64, name string) (q MessageQueue, found bool, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		q, found, err = entityFolded(c, tenant, name)
		return err
	})
	return q, found, err
}

const (
	sqlEntityPage       = messageQueueColumns + "AND tenant = ? AND is_topic = ? AND topic IS NULL ORDER BY name LIMIT ? + 0 OFFSET ? + 0"
	sqlSubscriptionPage = messageQueueColumns + "AND topic = ? ORDER BY name LIMIT ? + 0 OFFSET ? + 0"
)

// Page returns a tenant's queues or topics by name, so many after leaving out the first skip.
func (s EntityStore) Page(ctx context.Context, tenant int64, topics bool, skip, limit int) ([]MessageQueue, error) {
	return s.page(ctx, sqlEntityPage, func(st driver.Statement) driver.Statement { return st.Int(tenant).Int(driver.BoolInt(topics)) }, skip, limit)
}

// SubscriptionPage does the same for the subscriptions of a topic.
func (s EntityStore) SubscriptionPage(ctx context.Context, topic MessageQueue, skip, limit int) ([]MessageQueue, error) {
	return s.page(ctx, sqlSubscriptionPage, func(st driver.Statement) driver.Statement { return st.Int(topic.No) }, skip, limit)
}

func (s EntityStore) page(ctx context.Context, sql string, of func(driver.Statement) driver.Statement, skip, limit int) (list []MessageQueue, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		list = nil // it may be the second attempt
		return of(c.Prep(sql)).Int(int64(limit)).Int(int64(skip)).Each(func(r driver.Row) error {
			list = append(list, readMessageQueue(r))
			return nil
		})
	})
	return list, err
}

// Change changes the status and the metadata of a queue, a topic or a subscription. What the
// change leaves out stays.
func (s EntityStore) Change(ctx context.Context, q MessageQueue, change forebay.EntityChange) (changed MessageQueue, err error) {
	return db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange, Party: q.Tenant, Rows: entityRows}, func(t *Tx) (MessageQueue, error) {
		before, found, err := t.MessageQueue(q.No)
		if err == nil && !found {
			err = PutOptions{Mode: PutExisting}.check(q, false)
		}
		if err != nil {
			return q, err
		}
		after := before
		if _, err := entity.ApplyChange(change, &after); err != nil || before.SameSettings(after) {
			return after, err
		}
		after.UpdatedAt = driver.FromMillis(t.Now)
		if err := t.Entities.update(after); err != nil {
			return after, err
		}
		t.Entities.statusChanged(before, after)
		if err := t.Entities.updateTopic(after); err != nil {
			return after, err
		}
		return after, audit.Append(t.Tx, entityAudit(ctx, "put", after, after.AuditDetail()))
	})
}

// wordStatus tells all processes that an entity may or may not be received from any more.
var wordStatus = db.NewWordKind('u', db.ToAll)

// statusChanged has the receivers that wait for an entity look again, in all processes. They
// find out what its status says now.
func (t *entityTx) statusChanged(before, after MessageQueue) {
	if before.Status.Receives() == after.Status.Receives() {
		return
	}
	t.W.scanQueue(after.No)
	t.Notify(wordStatus, after.No, 0, 0)
}

// scanQueue lets everything be scanned that receivers of the queue wait for.
func (p *Participant) scanQueue(no int64) {
	for subqueue, receivers := range p.Waiters {
		if len(receivers) > 0 && receivers[0].Queue.No == no {
			p.DueAt[subqueue] = 0
		}
	}
}

// sqlStatus finds the status of an entity. Statements that find what a receiver gets compare it
// themselves: they end with "NOT EXISTS …status >= 2".
const sqlStatus = "SELECT status FROM queues WHERE no = ?"

// askDisabled asks whether nobody may receive from the queue of a subqueue.
func askDisabled(subqueue queue.Subqueue, disabled *bool) driver.PipelineQuery {
	return driver.PipelineQuery{SQL: sqlStatus, Bind: func(st driver.Statement) driver.Statement { return st.Int(subqueue.Queue()) },
		OnRow: func(r driver.Row) { *disabled = r.Int(0) >= receiveDisabled }}
}

// refuseDisabled answers the receivers that wait for a queue that nobody may receive from.
// Webhooks stand last, and wait on.
func (p *Participant) refuseDisabled(t *Tx, waiting []*Receiver) (rest []*Receiver) {
	for i, c := range waiting {
		if c.Webhook {
			return waiting[i:]
		}
		if c.Begin() { // else its caller has gone
			c.Err = entity.ErrReceiveDisabled
			t.Deliveries.served = append(t.Deliveries.served, c)
			t.Served++
		}
	}
	return nil
}

// checkReceives refuses what only receivers of an entity may do.
func (t *Tx) checkReceives(no int64) error {
	q, found, err := t.MessageQueue(no)
	if err == nil && found && !q.Status.Receives() {
		err = entity.ErrReceiveDisabled
	}
	return err
}

// accessTime is the resolution at which the use of entities is recorded.
const accessTime = time.Minute

// maxAccessed bounds what is remembered of the use of entities.
const maxAccessed = 10_000

var sqlAccessed = driver.BatchForm("UPDATE queues SET accessed_at = ? WHERE no = ?",
	"UPDATE queues q SET accessed_at = p1 FROM %s WHERE q.no = ANY (ARRAY[p2])")

// accessed records that an entity is used. Memory says when this was last recorded, so that few
// messages cost a write.
func (t *Tx) accessed(no int64) error {
	if since := t.Now - t.W.accessed[no]; since >= 0 && since < accessTime.Milliseconds() {
		return nil
	}
	if len(t.W.accessed) >= maxAccessed {
		clear(t.W.accessed)
	}
	t.W.accessed[no] = t.Now
	return t.Prep(sqlAccessed).Int(t.Now).Int(no).Exec()
}
