package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/orchestrate/statements"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// The store does not interpret events. It keeps the history of an instance, the events that have
// arrived since (the inbox), its activities, and its orchestration work item.

// NewOrchestration is an instance to store.
type NewOrchestration struct {
	Tenant    int64
	ID        string
	Execution string
	Name      string
	Version   string
	Input     Payload
	Event     Payload // the start event
	StartAt   int64   // milliseconds; 0: now
	// KeyID is the API key whose budget its jobs count against, inherited from the caller; "": none.
	KeyID     string
	Audit     audit.Act // of the start
	Replacing audit.Act // of a start that purges another instance
	parent    int64
}

// AnyEnd are the final statuses.
var AnyEnd = []forebay.OrchestrationStatus{forebay.OrchestrationCompleted, forebay.OrchestrationFailed, forebay.OrchestrationTerminated, forebay.OrchestrationCanceled}

// CreateOrchestration stores an instance. An instance with its id must have ended with one of
// the statuses of replace. It is purged in the same transaction.
func (s *Store) CreateOrchestration(ctx context.Context, o NewOrchestration, replace ...forebay.OrchestrationStatus) error {
	operation := db.Op{Stage: db.StageSettle, Party: o.Tenant, Numbers: 2, Rows: 4, Size: len(o.Input.inline()) + len(o.Event.inline()),
		Local: true, Interleaves: true, Asks: func() []driver.Prefetch { return []driver.Prefetch{prefetchOrchestration(o.Tenant, o.ID)} }}
	if o.Audit.Action != "" || len(replace) > 0 {
		operation.Hints = audit.Appends{}
	}
	_, err := db.TransactIn(ctx, key, s.Writer, operation, func(t *tx) (struct{}, error) {
		old, err := t.orchestrationOf(o.Tenant, o.ID)
		if err != nil {
			return struct{}{}, err
		}
		made, err := t.createOrchestration(o, old, replace)
		if err == nil && !made {
			err = forebay.Errorf(forebay.CodeConflict, "there is an instance %s already", o.ID)
		}
		if err == nil {
			err = audit.Append(t.Tx, o.Audit)
		}
		return struct{}{}, err
	})
	return err
}

// createOrchestration reports whether the instance was stored: no other has the id, or the other,
// which is old, was replaced.
func (t *tx) createOrchestration(o NewOrchestration, old orchestrationRef, replace []forebay.OrchestrationStatus) (bool, error) {
	if old.no != 0 && (!old.over || !slices.Contains(replace, old.end)) {
		return false, nil
	}
	t.created(o.Tenant, o.ID)
	if old.no != 0 {
		t.Changed(old.no) // watchers look up the new instance
		t.changed(old.no)
		if err := errors.Join(t.purge(old.no, o.ID, false), audit.Append(t.Tx, o.Replacing)); err != nil {
			return false, err
		}
	}
	workQueue, err := t.workItems().queueOf(o.Tenant, workqueues.Orchestrations, o.Name)
	if err != nil {
		return false, err
	}
	no, err := t.queue.NewSeq()
	if err != nil {
		return false, err
	}
	err = t.Prep(statements.InsertOrchestration).Int(no).Int(o.Tenant).Text(o.ID).Text(o.Execution).Text(o.Name).TextOrNull(o.Version).IntOrNull(o.parent).
		Int(t.Now).TextOrNull(o.KeyID).Blob(o.Input.inline()).TextOrNull(o.Input.Blob).Exec()
	if err != nil {
		return false, err
	}
	at := max(t.Now, o.StartAt)
	err = t.Prep(statements.InsertOrchestrationItem).Int(no).Int(workQueue).Int(at).Text(string(forebay.OrchestrationPending)).Int(t.Now).
		Int(driver.BoolInt(t.stored.add(o.Input, o.Event))).Exec()
	if err != nil {
		return false, err
	}
	t.workItems().ready(workQueue, at)
	feed.Tell(t.Tx, forebay.FeedOrchestration, o.Tenant, o.ID, forebay.OrchestrationPending)
	return true, t.insertEvent(no, at, false, o.Event)
}

// orchestrationRef is what most transitions need to know about an instance.
type orchestrationRef struct {
	no        int64
	execution string
	name      string
	over      bool
	end       forebay.OrchestrationStatus // its final status; "": it is open
	queue     int64                       // of its work item; 0: it has ended
	// begins is when its first item may be claimed; 0: it was or is claimed.
	begins    int64
	suspended bool  // or is about to be
	ending    bool  // it is to be terminated
	parent    int64 // the instance that awaits its end; 0: none
}

// read takes in a row of statements.InstanceOf.
func (o *orchestrationRef) read(r driver.Row) {
	end, queueName := r.Text(3), r.Text(6)
	*o = orchestrationRef{no: r.Int(0), execution: r.Text(1), name: r.Text(2), over: end != "", end: forebay.OrchestrationStatus(end), queue: r.Int(4),
		begins: r.Int(5), suspended: queueName == suspendQueue, ending: queueName == terminateQueue, parent: r.Int(7)}
}

func (t *tx) orchestrationOf(tenant int64, id string) (o orchestrationRef, err error) {
	_, err = t.Prep(statements.InstanceOf).Int(int64(workqueues.SkipsCode)).Int(tenant).Text(id).One(o.read)
	return o, err
}

// prefetchOrchestration is what orchestrationOf reads. The operation may change what it says.
func prefetchOrchestration(tenant int64, id string) driver.Prefetch {
	return driver.NewPrefetch(statements.InstanceOf, orchestrationRow(tenant, id)).
		Int(int64(workqueues.SkipsCode)).Int(tenant).Text(id)
}

// orchestrationRow names the row of an instance.
func orchestrationRow(tenant int64, id string) driver.RowName {
	return driver.RowName{Of: "orchestrations", No: tenant, ID: id}
}

// instanceKey names an instance as callers do.
type instanceKey struct {
	tenant int64
	id     string
}

// changed records that the transaction has changed what statements.InstanceOf or the row of the
// work item says about an instance.
func (t *tx) changed(instance int64) {
	if t.changedInstances == nil {
		t.changedInstances = map[int64]int{}
	}
	t.changes++
	t.changedInstances[instance] = t.changes
}

// created records that the transaction has stored an instance.
func (t *tx) created(tenant int64, id string) {
	if t.createdInstances == nil {
		t.createdInstances = map[instanceKey]int{}
	}
	t.changes++
	t.createdInstances[instanceKey{tenant, id}] = t.changes
}

// existing is orchestrationOf for an instance that must exist.
func (t *tx) existing(tenant int64, id string) (orchestrationRef, error) {
	o, err := t.orchestrationOf(tenant, id)
	if err == nil && o.no == 0 {
		err = noOrchestration(id)
	}
	return o, err
}

// addEvent puts an event into an instance's inbox. answer says that the current execution has
// asked for it.
func (t *tx) addEvent(instance, at int64, answer bool, event Payload) error {
	if err := t.keepBlob(instance, event); err != nil {
		return err
	}
	return t.insertEvent(instance, at, answer, event)
}

// insertEvent is addEvent for an event whose blob is recorded.
func (t *tx) insertEvent(instance, at int64, answer bool, event Payload) error {
	no, err := t.queue.NewSeq()
	if err != nil {
		return err
	}
	t.arrivals.Add(instance, at, answer)
	if event.Blob != "" {
		return t.Prep(statements.InsertLargeEvent).Int(instance).Int(no).Int(at).Int(driver.BoolInt(answer)).Int(t.Now).Text(event.Blob).Exec()
	}
	return t.Prep(statements.InsertEvent).Int(instance).Int(no).Int(at).Int(driver.BoolInt(answer)).Int(t.Now).Blob(event.Bytes).Exec()
}

// wakeInstance makes an instance's work item ready, unless the item is claimed: its completion
// checks the inbox. A workQueue of 0 is looked up.
func (t *tx) wakeInstance(instance, workQueue int64) error {
	if t.woken[instance] {
		return nil
	}
	if workQueue == 0 {
		found, err := t.Prep("SELECT work_queue FROM orchestration_items WHERE instance = ?").Int(instance).One(func(r driver.Row) { workQueue = r.Int(0) })
		if err != nil || !found {
			return err
		}
	}
	if t.woken == nil {
		t.woken = map[int64]bool{}
	}
	t.woken[instance] = true
	t.workItems().ready(workQueue, t.Now)
	return t.Prep(statements.WakeInstance).Int(t.Now).Int(instance).Int(t.Now).Exec()
}

// Effect is what an event does to an instance beside what its code makes of it.
type Effect int

const (
	NoEffect Effect = iota
	Suspends
	Resumes
	Terminates
)

// signal puts an event into an instance's inbox and moves its work item to the right queue. If
// the event suspends or terminates the instance, any process may claim the item. Events wait for
// a scheduled start; a termination does not.
func (t *tx) signal(tenant int64, o orchestrationRef, answer bool, event Payload, does Effect) (err error) {
	if does != NoEffect {
		t.changed(o.no)
	}
	at, workQueue := max(t.Now, o.begins), o.queue
	switch does {
	case Suspends:
		workQueue, err = t.workItems().queueOf(tenant, workqueues.SkipsCode, suspendQueue)
	case Resumes:
		workQueue, err = t.workItems().queueOf(tenant, workqueues.Orchestrations, o.name)
	case Terminates:
		if at > t.Now {
			at = t.Now
			err = t.Prep(statements.Hasten).Int(at).Int(o.no).Int(at).Exec()
		}
		if err == nil {
			workQueue, err = t.workItems().queueOf(tenant, workqueues.SkipsCode, terminateQueue)
		}
	}
	if err != nil {
		return err
	}
	if err := t.addEvent(o.no, at, answer, event); err != nil {
		return err
	}
	switch {
	case workQueue != o.queue:
		t.workItems().ready(workQueue, 0) // an item that is ready keeps its time
		return t.Prep(statements.MoveInstance).Int(workQueue).Int(at).Int(at).Int(o.no).Exec()
	case at > t.Now: // its first item is ready then
		return nil
	}
	return t.wakeInstance(o.no, o.queue)
}

// Signal is an event for an instance.
type Signal struct {
	Tenant int64
	ID     string
	Event  Payload
	Effect Effect
	Audit  audit.Act // of the sender
}

// changesNothing reports whether the event has no effect: the instance is already suspended,
// running or ending. Some SDKs fail on a resume without a suspension.
func (o orchestrationRef) changesNothing(does Effect) bool {
	switch does {
	case Suspends:
		return o.suspended
	case Resumes:
		return !o.suspended
	case Terminates:
		return o.ending
	}
	return false
}

// SendOrchestration puts an event into the inbox of an open instance that is not being
// terminated. An event without effect is dropped.
func (s *Store) SendOrchestration(ctx context.Context, g Signal) error {
	operation := db.Op{Stage: db.StageSettle, Party: g.Tenant, Numbers: 1, Rows: 2, Size: len(g.Event.inline()),
		Local: true, Interleaves: true}
	operation.Asks = func() []driver.Prefetch {
		ref := prefetchOrchestration(g.Tenant, g.ID)
		ref.Shared = g.Effect == NoEffect // it changes nothing that others read
		return []driver.Prefetch{ref}
	}
	if g.Audit.Action != "" {
		operation.Hints = audit.Appends{}
	}
	_, err := db.TransactIn(ctx, key, s.Writer, operation, func(t *tx) (struct{}, error) {
		o, err := t.existing(g.Tenant, g.ID)
		switch {
		case err != nil:
			return struct{}{}, err
		case o.over:
			return struct{}{}, forebay.Errorf(forebay.CodeGone, "the instance %s is over", g.ID)
		case o.ending && g.Effect != Terminates:
			return struct{}{}, forebay.Errorf(forebay.CodeGone, "the instance %s is being terminated", g.ID)
		case o.changesNothing(g.Effect):
			return struct{}{}, t.freePayload(g.Event)
		}
		if err := t.signal(g.Tenant, o, false, g.Event, g.Effect); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, audit.Append(t.Tx, g.Audit)
	})
	return err
}

func noOrchestration(id string) error {
	return forebay.Errorf(forebay.CodeNotFound, "there is no instance %s", id)
}

// OrchestrationRow is an instance as stored.
type OrchestrationRow struct {
	forebay.Orchestration
	No        int64
	Execution string
	// InputBlob and OutputBlob are the keys of an input and an output in blob storage. Input and
	// Output are nil then.
	InputBlob, OutputBlob string
}

func readOrchestration(r driver.Row) (OrchestrationRow, error) {
	o := OrchestrationRow{No: r.Int(0), Execution: r.Text(2), InputBlob: r.Text(15), OutputBlob: r.Text(16), Orchestration: forebay.Orchestration{
		ID: r.Text(1), Name: r.Text(3), Version: r.Text(4), ParentID: r.Text(5), Status: forebay.OrchestrationStatus(r.Text(6)),
		Input: r.Blob(7), Output: r.Blob(8), CustomStatus: r.Blob(9), CreatedAt: driver.FromMillis(r.Int(11)),
		StartedAt: driver.FromMillisOrNil(r, 12), UpdatedAt: driver.FromMillis(r.Int(13)), CompletedAt: driver.FromMillisOrNil(r, 14),
	}}
	if failure := r.Blob(10); failure != nil {
		return o, json.Unmarshal(failure, &o.Failure)
	}
	return o, nil
}

// size is the number of bytes of all its payloads, those in blob storage included.
func (o *OrchestrationRow) size() int {
	return Payload{o.Input, o.InputBlob}.Size() + Payload{o.Output, o.OutputBlob}.Size() + len(o.CustomStatus)
}

// Orchestration returns an instance.
func (s *Store) Orchestration(ctx context.Context, tenant int64, id string) (o OrchestrationRow, err error) {
	err = s.Read(ctx, func(c driver.Conn) (err error) {
		var failed error
		found, err := c.Prep(statements.Instances + "WHERE owned.tenant = ? AND owned.id = ?").Int(tenant).Text(id).
			One(func(r driver.Row) { o, failed = readOrchestration(r) })
		if err == nil && !found {
			return noOrchestration(id)
		}
		if err == nil {
			err = failed
		}
		return err
	})
	return o, err
}

// OrchestrationQuery selects instances.
type OrchestrationQuery struct {
	Tenant      int64
	Prefix      string // of the ids
	Name        string
	Statuses    []forebay.OrchestrationStatus // none: all
	From, Until time.Time                     // of their creation; zero: no bound
	// Below is the number of the last instance of the page before; 0: none.
	Below int64
	Limit int
}

// orchestrationPage is how many instances are read at once.
const orchestrationPage = 100

// orchestrationPageBytes is the size of the instances at which a page ends.
const orchestrationPageBytes = 16 << 20

// among narrows a list by an index, where one exists: for open instances, and for a single
// status other than Completed.
func (q *OrchestrationQuery) among() (sql, status string) {
	switch {
	case len(q.Statuses) > 0 && !slices.ContainsFunc(q.Statuses, forebay.OrchestrationStatus.Terminal):
		return " AND owned.status IS NULL", ""
	case len(q.Statuses) == 1 && q.Statuses[0] != forebay.OrchestrationCompleted:
		return " AND owned.status <> 'Completed' AND owned.status = ?", string(q.Statuses[0])
	}
	return "", ""
}

// Orchestrations returns instances, the newest first, and whether there are more.
func (s *Store) Orchestrations(ctx context.Context, q OrchestrationQuery) (found []OrchestrationRow, more bool, err error) {
	until := int64(neverVisible)
	if !q.Until.IsZero() {
		until = q.Until.UnixMilli()
	}
	err = s.Read(ctx, func(c driver.Conn) error {
		found, more = nil, false
		below, seen, size := q.Below, orchestrationPage, 0
		if below == 0 {
			below = neverVisible
		}
		for seen == orchestrationPage {
			seen = 0
			among, status := q.among()
			st := c.Prep(statements.List + among + " ORDER BY owned.no DESC LIMIT ? + 0").Int(q.Tenant).Int(below).Int(driver.MillisOrZero(q.From)).Int(until).Text(q.Name).Text(q.Name).
				Text(q.Prefix).Int(int64(utf8.RuneCountInString(q.Prefix))).Text(q.Prefix)
			if status != "" {
				st = st.Text(status)
			}
			err := st.Int(orchestrationPage).Each(func(r driver.Row) error {
				seen++
				below = r.Int(0)
				if len(q.Statuses) > 0 && !slices.Contains(q.Statuses, forebay.OrchestrationStatus(r.Text(6))) {
					return nil
				}
				if len(found) == q.Limit || size >= orchestrationPageBytes {
					more = true
					return driver.ErrStop
				}
				o, err := readOrchestration(r)
				found = append(found, o)
				size += o.size()
				return err
			})
			if err != nil {
				return driver.UnlessStopped(err)
			}
			if c.Limit != nil && c.Limit() != nil {
				return c.Limit()
			}
		}
		return nil
	})
	return found, more, err
}
