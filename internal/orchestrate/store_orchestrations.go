package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/orchestrate/statements"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
	"github.com/forebayhq/forebay/internal/queue"
)

// OrchestrationItem is a claimed orchestration work item: the right to run the code of an
// instance over its new events, and to store the result.
type OrchestrationItem struct {
	Instance  int64
	Tenant    int64
	ID        string
	Name      string
	Execution string
	// Number counts the items completed before. A cached history with this number is current.
	Number         int64
	Events         int64  // in the history
	Deliveries     int    // of this item, this one included
	LostDeliveries int    // earlier ones whose process died, or whose result could not be stored
	run            int64  // how often the instance was rewound or continued as new
	Custom         []byte // status, as the last item left it
	Token          int64
	Queue          int64
	SkipsCode      bool // the new events suspend or terminate the instance: no code runs
	Arrived        []Arrived
	now            int64 // when it was claimed
	keyID          string
	last           int64 // the number of its last new event
}

// Arrived is a new event of an instance. Instead of an event it may be the end of a job.
type Arrived struct {
	Event   Payload
	EventID int    // of the activity that the job is
	Job     string // "": there is an event
}

// Bounds of the new events of one work item. The next item gets the rest.
const (
	maxArrivedEvents = 1000
	maxArrivedBytes  = 16 << 20
)

// maxEventsTogether is how many bytes of new events an instance may have that are read in one
// round trip with those of others. More are read by themselves: all of them would be in memory at
// once.
const maxEventsTogether = 256 << 10

// lostDeliveryUnit is what a lost delivery adds to the column deliveries. The lower bits count
// all deliveries, which lengthens the backoff. The upper bits count lost deliveries, which makes
// the item poison.
const lostDeliveryUnit = 1 << 24

// An item with that many lost deliveries is suspected of killing its process. Suspects are
// claimed one at a time, poisonSuspectPause apart. An innocent item that ran beside a poison one
// then gets stored, and its count starts again.
const (
	poisonSuspectAfter = 3
	poisonSuspectPause = 1000 // milliseconds
)

// ClaimOrchestrations waits until an instance is ready and returns up to Max work items.
func (s *Store) ClaimOrchestrations(ctx context.Context, req ClaimRequest) ([]OrchestrationItem, error) {
	c, err := s.claimItems(ctx, workqueues.Orchestrations, req)
	if err != nil {
		return nil, err
	}
	return c.orchestrations, nil
}

func (t workItemTx) takeOrchestrations(p *workqueues.Queue, c *claim, most int) (taken int, err error) {
	var found []OrchestrationItem
	var sizes []int64 // of the new events of each; 0 where they are read one after the other
	sized := int64(0)
	if t.w.Shared() {
		sized = maxArrivedEvents
	}
	err = t.Prep(statements.Ready).Int(t.Now).Int(sized).Int(p.No).Int(t.w.floors.Ready(p.No, t.Now)).Int(t.Now).Int(int64(most)).Each(func(r driver.Row) error {
		found = append(found, OrchestrationItem{Instance: r.Int(0), Tenant: r.Int(1), ID: r.Text(2), Name: r.Text(3), Execution: r.Text(4),
			Number: r.Int(5), Events: r.Int(6), Deliveries: int(r.Int(7)%lostDeliveryUnit) + 1, LostDeliveries: int(r.Int(7) / lostDeliveryUnit), Custom: r.Blob(8),
			run: r.Int(9), keyID: r.Text(11), Queue: p.No, SkipsCode: p.Kind == workqueues.SkipsCode, now: t.Now})
		if r.Int(10) != 0 { // its lock ended without a result
			found[len(found)-1].LostDeliveries++
		}
		sizes = append(sizes, r.Int(12))
		t.w.floors.Taken(p.No, r.Int(13))
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = t.Interleave(len(found), func(i int) error {
		if sizes[i] > maxEventsTogether {
			return t.Alone(func() error { return t.arrived(&found[i]) })
		}
		return t.arrived(&found[i])
	})
	if err != nil {
		return 0, err
	}
	suspect := func(item OrchestrationItem) bool { return item.LostDeliveries >= poisonSuspectAfter }
	var seen []*OrchestrationItem // whose events the last item has seen
	for i := range found {
		item := &found[i]
		delete(t.woken, item.Instance)
		if len(item.Arrived) == 0 {
			seen = append(seen, item)
			continue
		}
		until, delivered := t.Now+c.Lock.Milliseconds(), item.LostDeliveries*lostDeliveryUnit+item.Deliveries
		if suspect(*item) && slices.ContainsFunc(c.orchestrations, suspect) {
			until, delivered = t.Now+poisonSuspectPause, delivered-1
			t.ready(p.No, until)
		} else {
			item.Token = queue.NewToken()
			t.w.floors.Note(p.No, until, t.Now)
		}
		err := t.Prep(statements.LockInstance).Int(until).IntOrNull(item.Token).Int(int64(delivered)).Int(item.Instance).Exec()
		if err != nil {
			return 0, err
		}
		if item.Token != 0 {
			c.orchestrations = append(c.orchestrations, *item)
		}
	}
	return len(found), t.Interleave(len(seen), func(i int) error { return t.unlockInstance(seen[i], p.No) })
}

// arrived reads the new events of an instance.
func (t workItemTx) arrived(item *OrchestrationItem) error {
	size := 0
	return driver.UnlessStopped(t.Prep(statements.Arrived).Int(item.Instance).Int(t.Now).Int(maxArrivedEvents).Each(func(r driver.Row) error {
		a := Arrived{Event: payloadAt(r, 1, 5), EventID: int(r.Int(2)), Job: r.Text(3)}
		if size += a.Event.Size() + int(r.Int(4)); size > maxArrivedBytes && len(item.Arrived) > 0 {
			return driver.ErrStop
		}
		item.Arrived = append(item.Arrived, a)
		item.last = r.Int(0)
		return nil
	}))
}

// unlockInstance unlocks the work item. It is ready again once the inbox has a visible event, in
// the current queue of the instance.
func (t *tx) unlockInstance(item *OrchestrationItem, workQueue int64) error {
	if t.w.Shared() {
		unlock := driver.NewPrefetch(statements.UnlockInstance, item.row()).Int(item.Instance).Int(neverVisible)
		if err := t.Prefetch([]driver.Prefetch{unlock.Changing()}); err != nil {
			return err
		}
	}
	_, err := t.Prep(statements.UnlockInstance).Int(item.Instance).Int(neverVisible).One(func(r driver.Row) { t.workItems().ready(workQueue, r.Int(0)) })
	return err
}

// OrchestrationResult is what is stored of an orchestration work item.
type OrchestrationResult struct {
	Status       forebay.OrchestrationStatus
	CustomStatus []byte
	Version      string  // of the code, once it is known
	Events       int     // new in the history
	History      Payload // the new events
	Reset        *Reset  // nil unless it continues as new
	Output       Payload // if the status is final
	Failure      *forebay.OrchestrationFailure
	Activities   []NewActivity
	Timers       []Timer
	Messages     []OrchestrationMessage
}

// Reset is the new execution of an instance that continues as new.
type Reset struct {
	Execution string
	Input     Payload
	Version   string // that the instance was started with; "": not known yet
}

// Timer is an event that becomes visible later.
type Timer struct {
	At    int64 // milliseconds
	Event Payload
}

func (r *OrchestrationResult) bytes() int {
	n := len(r.History.inline()) + len(r.Output.inline())
	for i := range r.Activities {
		n += len(r.Activities[i].Event.inline())
	}
	for i := range r.Messages {
		n += len(r.Messages[i].Event.inline())
	}
	return n
}

func (r *OrchestrationResult) numbers() int { return len(r.Timers) + 2*len(r.Messages) + 1 }

// prefetchHeld is what the completion of a work item reads of it.
func (i *OrchestrationItem) prefetchHeld(r *OrchestrationResult) driver.Prefetch {
	return statements.Held(i.Instance, i.Token, i.last, i.now, r.Status.Terminal(), r.Reset != nil)
}

// completion is a work item that is being completed.
type completion struct {
	queue int64
	blobs bool
	next  int64 // when the first event is due that its instance has not seen; neverVisible: there is none
}

// held returns the work item, or forebay.ErrLockLost if its lock does not hold any more.
func (t *tx) held(item *OrchestrationItem, r *OrchestrationResult) (held completion, err error) {
	if item.now > t.Now { // claimed while the clock was ahead: its timers would be late by as much
		return held, forebay.ErrLockLost
	}
	for before := -1; before != t.changedInstances[item.Instance]; { // another operation may change it meanwhile
		if before = t.changedInstances[item.Instance]; before > 0 {
			t.DropPrefetched(item.row())
		}
		found, err := t.Ask(item.prefetchHeld(r)).One(func(row driver.Row) {
			held = completion{queue: row.Int(0), blobs: row.Int(1) != 0, next: neverVisible}
			if !r.Status.Terminal() && !row.IsNull(2) {
				held.next = row.Int(2)
			}
		})
		if err == nil && !found {
			err = forebay.ErrLockLost
		}
		if err != nil {
			return held, err
		}
	}
	return held, nil
}

// CompleteOrchestration stores the result of a work item, all or nothing. The history grows,
// activities and timers are stored, messages are delivered, and the events it saw leave the
// inbox. It returns forebay.ErrLockLost, and changes nothing, if the lock is lost. If the
// instance does not end as completed, it returns the jobs that the instance still awaits.
//
// It runs after the activities that are settled in the same transaction: a dropped activity must
// not be answered.
func (s *Store) CompleteOrchestration(ctx context.Context, item *OrchestrationItem, r *OrchestrationResult) (orphans []string, err error) {
	operation := db.Op{Stage: db.StageChange, Numbers: r.numbers(), Size: r.bytes(), Local: true, Interleaves: true, Asks: func() []driver.Prefetch {
		asks := []driver.Prefetch{item.prefetchHeld(r)}
		for i := range r.Messages {
			asks = append(asks, r.Messages[i].receiver(item.Tenant).prefetch())
		}
		return asks
	}}
	return db.TransactIn(ctx, key, s.Writer, operation, func(t *tx) (orphans []string, err error) {
		if r.Status.Terminal() && r.Status != forebay.OrchestrationCompleted {
			if orphans, err = t.jobsOf(item.Instance); err != nil {
				return nil, err
			}
		}
		return orphans, t.completeOrchestration(item, r)
	})
}

func (t *tx) completeOrchestration(item *OrchestrationItem, r *OrchestrationResult) error {
	held, err := t.held(item, r)
	if err != nil {
		return err
	}
	t.changed(item.Instance)
	t.Changed(item.Instance)
	feed.Tell(t.Tx, forebay.FeedOrchestration, item.Tenant, item.ID, r.Status)
	for i := range item.Arrived {
		if err := t.freePayload(item.Arrived[i].Event); err != nil {
			return err
		}
	}
	events, run := item.Events+int64(r.Events), item.run
	if r.Reset != nil {
		events, run = int64(r.Events), run+1
		if held.blobs {
			if err := t.freeBlobs(item.Instance, statements.FreeRun); err != nil {
				return err
			}
		}
		if err := t.resetOrchestration(item, run, r.Reset); err != nil {
			return err
		}
	}
	if err := t.Prep(statements.ForgetSeen).Int(item.Instance).Int(item.last).Int(item.now).Exec(); err != nil {
		return err
	}
	if r.Events > 0 {
		if err := t.addHistory(item.Instance, item.Number, r.Events, r.History); err != nil {
			return err
		}
	}
	if r.Version != "" {
		if err := t.Prep(statements.SetVersion).Text(r.Version).Int(item.Instance).Exec(); err != nil {
			return err
		}
	}
	if r.Status.Terminal() {
		if held.blobs {
			free := statements.FreeRest
			if r.Status == forebay.OrchestrationFailed {
				free = statements.FreeAwaited
			}
			if err := t.freeBlobs(item.Instance, free); err != nil {
				return err
			}
		}
		if err := t.endOrchestration(item, r); err != nil {
			return err
		}
		return t.sendMessages(item, r)
	}
	for i := range r.Activities {
		if err := t.newActivity(item, run, &r.Activities[i]); err != nil {
			return err
		}
	}
	for _, timer := range r.Timers {
		if err := t.addEvent(item.Instance, max(timer.At, 1), true, timer.Event); err != nil {
			return err
		}
	}
	if err := t.sendMessages(item, r); err != nil {
		return err
	}
	next := min(held.next, t.arrivals.Next(item.Instance))
	err = t.Prep(statements.CompleteOrchestration).Int(next).Int(events).Int(run).Text(string(r.Status)).Blob(r.CustomStatus).Int(t.Now).Int(t.Now).
		Int(item.Instance).Int(item.Token).Exec()
	delete(t.woken, item.Instance)
	t.workItems().ready(held.queue, next)
	return err
}

// fencedQueue runs a statement that needs a lock, and returns the current queue of the instance.
func fencedQueue(st driver.Statement) (workQueue int64, err error) {
	found, err := st.One(func(r driver.Row) { workQueue = r.Int(0) })
	if err == nil && !found {
		err = forebay.ErrLockLost
	}
	return workQueue, err
}

func (t *tx) addHistory(instance, item int64, count int, events Payload) error {
	if events.Blob != "" {
		if err := t.keepBlob(instance, events); err != nil {
			return err
		}
		return t.Prep(statements.InsertLargeHistory).Int(instance).Int(item).Int(int64(count)).Blob([]byte{}).Text(events.Blob).Exec()
	}
	return t.Prep(statements.InsertHistory).Int(instance).Int(item).Int(int64(count)).Blob(events.Bytes).Exec()
}

// resetOrchestration removes the execution so far: its history, and everything that would still
// answer it. Its attempts stay on record.
func (t *tx) resetOrchestration(item *OrchestrationItem, run int64, r *Reset) error {
	if err := t.forgetExecution(item.Instance); err != nil {
		return err
	}
	if err := t.removeRows(item.Instance, "orchestration_history"); err != nil {
		return err
	}
	if run%pruneAttemptsEvery == 0 {
		if err := t.Prep(statements.PruneAttempts).Int(item.Instance).Int(maxEarlierAttempts - 1).Exec(); err != nil {
			return err
		}
	}
	if err := t.keepBlob(item.Instance, r.Input); err != nil {
		return err
	}
	return t.Prep(statements.ResetInstance).Text(r.Execution).Blob(r.Input.inline()).TextOrNull(r.Input.Blob).TextOrNull(r.Version).Int(item.Instance).Exec()
}

// forgetExecution removes what an execution awaits. Processes that execute its activities find
// that the lock is lost.
func (t *tx) forgetExecution(instance int64) error {
	t.forgets(instance)
	if err := t.dropActivities(instance); err != nil {
		return err
	}
	t.arrivals.ForgetAnswers(instance)
	return t.Prep(statements.ForgetAnswers).Int(instance).Exec()
}

// endOrchestration stores the end of an instance and removes everything that was still to
// happen. One that has failed keeps the events that it has not seen: it may be rewound.
func (t *tx) endOrchestration(item *OrchestrationItem, r *OrchestrationResult) error {
	var failure []byte
	if r.Failure != nil {
		var err error
		if failure, err = json.Marshal(r.Failure); err != nil {
			return err
		}
	}
	err := t.Prep(statements.EndOrchestration).Text(string(r.Status)).Int(t.Now).Blob(r.Output.inline()).TextOrNull(r.Output.Blob).Blob(failure).Blob(r.CustomStatus).Int(t.Now).Int(item.Instance).Exec()
	if err != nil {
		return err
	}
	if err := t.keepBlob(item.Instance, r.Output); err != nil {
		return err
	}
	t.forgets(item.Instance)
	if err := t.dropActivities(item.Instance); err != nil {
		return err
	}
	if r.Status == forebay.OrchestrationFailed {
		return errors.Join(t.removeRows(item.Instance, "orchestration_items"), t.Prep(statements.ForgetAnswers).Int(item.Instance).Exec())
	}
	return t.removeRows(item.Instance, "orchestration_items", "orchestration_inbox")
}

// row names the work item's row.
func (i *OrchestrationItem) row() driver.RowName { return statements.ItemRow(i.Instance) }
