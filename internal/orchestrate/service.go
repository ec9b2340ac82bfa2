// Package orchestrate runs durable orchestrations: functions whose steps are recorded, so that
// they survive crashes and may take months.
//
// An orchestrator is replayed from its history whenever an event has arrived for its instance.
// The replay engine is dapr/durabletask-go. This package feeds it with work items and stores
// what they lead to. A work item is either an orchestration item, which runs an orchestrator
// over new events, or an activity.
//
// Processes claim work items from queues in the database, under locks that they renew. Failed
// activities are retried, and an orchestrator sees only the final outcome. Go functions run in
// this process. All other work items go to [Workers], which package durabletask implements by
// gRPC.
//
// # Rows
//
// orchestrations is the record, written when an instance begins and ends. orchestration_items is
// its small hot row: when its work item may be claimed, by which lock it is held, its status.
// orchestration_history has a row for the events of each completed item. What has arrived and was
// not seen yet is in orchestration_inbox; a timer is an event that is not visible yet.
// orchestration_activities has those without an outcome. orchestration_attempts has the attempts
// that ended, bounded where an instance continues as new. The deliveries of an item count, in
// their upper bits, how often it was lost. The end of a lock, a timer and a delay before a retry
// are all a visible_at, as with jobs.
//
// # The way of an orchestration item
//
// It is claimed with the events that have arrived, and the engine replays the code. One
// transaction stores what that led to: history, activities, timers, messages to others and the
// status. What was seen leaves the inbox. The lock token fences the transaction. Starting an
// instance and claiming its first item is one transaction. So is scheduling an activity and
// handing it to a process that waits for one. From start to activity it is two.
//
// # Panics
//
// The engine's workers run our own processors of items, which contain a panic in whatever the
// engine does. Such an item counts as lost: it is tried again, and fails its instance after ten
// times.
//
// # Work-item queues
//
// A work item is either the orchestration item of an instance or an activity. Items wait in
// queues by tenant, kind and name. A process claims the names that it has a Go function for, and
// all others while a worker of the tenant is connected by gRPC. The writer remembers for each
// queue when an item of it is ready. Claims wait in the writer as those of jobs do. Each queue
// that is ready gets its share of a claim.
//
// A running activity is not preempted, and activities may take long. So may a turn whose worker
// does not answer. So a tenant may have at most three times as many in a process as there are free
// places. Another tenant's then finds a place at once. The bound holds once the database knows
// activities, or turns, of two tenants. Activities that are jobs are only submitted: they are
// claimed separately and need no such place.
//
// # Suspend and terminate
//
// work without the orchestrator's code, for example after a deploy that left it out. The
// transaction that stores such an event moves the instance to a queue that every process claims
// from. Its items there run no code: the events go into the history, and the code sees them when
// it runs again. Activities of the instance are left alone. A resume moves the instance back. An
// item that another process holds at the time is stored if its lock holds, and the next item is
// the one without code. Events that are sent to an instance before its start wait for it, except
// a termination.
//
// # Payloads
//
// An input, a result, an output or an event over 64 KiB goes to blob storage. So do the events of
// a turn that hold one or are more than 1 MiB together. They go there before the transaction that
// refers to them, so neither transactions nor tables grow with them.
//
// Each such value belongs to one row. What is handed on, from an inbox to a history or from an
// instance to the one that it calls, is written again. So instances can be purged without asking
// others. The transaction that removes a row notes its blob as freed, and an hour later the blob
// is removed. So whoever copies the database and then the blob storage has what the database
// refers to. A flag on the turn's row spares turns the question where an instance never had any
// blob. A crash may leave something behind between an upload and its transaction. The sweep finds
// that by the table of all keys.
//
// A call to the storage may take ten seconds and what its bytes take at 128 KiB/s. So storage
// that answers nobody is soon known to be away. While it cannot be used, an outcome is kept and
// tried again under its renewed lock. A turn that cannot be read comes back later without
// counting as lost. A payload that is gone for good counts, and ends its instance as TurnLost.
//
// # Memory
//
// A process keeps the histories of instances that had a turn here lately, by the number of turns
// that are over, with their sizes. It keeps up to 200,000 events of 128 MiB. The turn says that
// number, so what is out of date is not used.
//
// # What an execution asked for dies with it
//
// Answers (activities, timers, sub-orchestrations) are marked in the inbox. When an instance
// continues as new they are removed, with the activities that are under way. Those then find
// their lock lost. (In one transaction activities end before turns, so that none answers after
// that.) A sub-orchestration's answer names the execution that it is for. So number 3 of the new
// execution is never given the result of number 3 of the old one. The same holds where an
// instance has the id of one that is over. Activities, timers and locks belong to the number of
// an instance, not to its id. A worker's answer bears the token of the item that it answers. The
// old instance is purged in the transaction that stores the new one, so of starts at once one
// finds it over.
//
// A sub-orchestration without an id of its own gets one by its caller's number. So those of an
// earlier instance with the caller's id, which may still be open, are not in its way.
//
// # Events that come too late
//
// An instance that has ended takes no events, and what it has not seen is gone with it. One that
// has failed keeps those events: they were taken, and it may be rewound. Its next turns see them
// then, so many at a time as ever. Only suspensions, resumptions and terminations are dropped. A
// rewind names the end that it was planned for, by its time. So a second one does not undo what
// has succeeded since the first.
//
// # Time
//
// is the database's. The time that the code of a turn sees, from which its timers count, is that
// of its claim. By the same clock a timer is due.
//
// # Suspending and resuming
//
// is the queue that an instance waits in. A signal that would leave it there is not stored. A
// turn that a worker is sent is without such events of before: SDKs fail on being resumed without
// having been suspended. A rewind is stored as a resume, for the history; no worker sees it.
//
// # Retries
//
// are the backend's: a failed attempt is a row and a later visible. The policy comes with the
// call or from the configuration by name. With the call it is a field of the input that the
// protocol does not have. It is taken out before anything is stored.
//
// # Tasks
//
// The activity forebay.task is not carried out but becomes a job. Submit puts the activity to
// rest in its transaction. Whatever ends the job writes the answer into the inbox in its own.
// That a job was called shows in its correlation id, so the end of any other succeeded job costs
// nothing.
//
// # Workflows
//
// are orchestrations whose code is internal/workflow. Told which calls have ended, in which
// order, it says which begin. The engine lets code wait for one task after the other, not for
// whichever ends first. So such an orchestrator is given the order from the history (AddOrdered).
// The first activity of each instance returns the text of the workflow: the history holds it, and
// a replay reads it from there. Processes only take that activity if they have such a workflow,
// since its name holds the workflow's.
//
// # Crashes
//
// Locks are renewed at a third of their time. What a dead process held is taken when its locks
// end, on SQLite at start-up. An attempt that was lost is a row; an activity that was lost ten
// times fails. A turn that comes to nothing rests for longer each time, up to a minute.
package orchestrate

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/orchestrate/history"
	"github.com/forebayhq/forebay/internal/orchestrate/places"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
	"github.com/forebayhq/forebay/internal/sleep"
)

// Options configures a Service.
type Options struct {
	Store    *Store
	Registry *Registry // the Go functions; nil: none
	Logger   *slog.Logger
	// ConcurrentOrchestrations and ConcurrentActivities bound the work items that are executed
	// here at once. Defaults are 64 and 256. Where several tenants have some, each may have at
	// most three times as many as there are free places. Activities that are jobs need none.
	ConcurrentOrchestrations, ConcurrentActivities int
	// Lock is how long a work item is locked; locks are renewed. Default 60 s.
	Lock time.Duration
	// Retries are retry policies by the activity's name, for calls without one.
	Retries map[string]forebay.RetryPolicy
	// Blobs holds payloads over [forebay.InlineBytes]; nil: they stay in the database.
	Blobs Blobs
	// MaxBytes bounds an input, an event's payload, or a result. Default 10 MiB.
	MaxBytes int64
	// Grace is how long a stop lets activities finish. Default 30 s.
	Grace time.Duration
	// Jobs executes the activity [TaskActivity]; nil: it is not offered.
	Jobs Jobs
	// Observe is called for each work item that was processed here. It must be quick.
	Observe func(ProcessedItem)
	// Remote says that orchestrators may be in workers that have not connected yet.
	Remote bool
	// Limits meters what clients start and send; nil: there are no limits.
	Limits *limits.Meter
}

// ProcessedItem is a work item that this process has processed. Lost attempts are reported by
// [Store.OnActivitiesLost].
type ProcessedItem struct {
	Kind    workqueues.Kind
	Name    string                      // of the orchestrator or of the activity
	Outcome string                      // for an activity one of ActivitySucceeded and so on
	Ended   forebay.OrchestrationStatus // the status in which the instance ended; "": it goes on
}

// The outcomes of orchestration work items.
const (
	ItemStored    = "stored"
	ItemAbandoned = "abandoned" // it has no result, and is retried
	ItemLockLost  = "lost"      // another process has claimed it
)

// Service executes orchestrations, and manages the instances of all processes.
type Service struct {
	Instances
	*heldItems
	workers Workers
	cache   history.Cache
	// beforeApply is called with the id of an instance before a response is applied. Tests make
	// it panic.
	beforeApply func(id string)

	takesOrchestrations, takesActivities *workqueues.Taker

	taskHubs map[int64]*taskHub // by tenant, guarded by heldItems.mu
	drained  chan any
}

// New returns a service. Run executes work items; managing instances needs no Run.
func New(opts Options) *Service {
	opts.ConcurrentOrchestrations, opts.ConcurrentActivities = cmp.Or(opts.ConcurrentOrchestrations, 64), cmp.Or(opts.ConcurrentActivities, 256)
	opts.Lock, opts.Grace = cmp.Or(opts.Lock, time.Minute), cmp.Or(opts.Grace, 30*time.Second)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, forebay.DefaultMaxInputBytes)
	if opts.Registry == nil {
		opts.Registry = NewRegistry()
	}
	if opts.Observe == nil {
		opts.Observe = func(ProcessedItem) {}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		Instances: Instances{payloads: payloads{opts.Blobs, opts.Store}, store: opts.Store, registry: opts.Registry, log: opts.Logger, opts: opts},
		heldItems: newHeldItems(opts.ConcurrentOrchestrations, opts.ConcurrentActivities),
		workers:   noWorkers{}, taskHubs: map[int64]*taskHub{}, drained: make(chan any),
	}
	connected := func(tenant int64) bool { return s.workers.Connected(tenant) }
	s.takesOrchestrations = workqueues.Known(s.registry.hasOrchestrator, connected)
	s.takesActivities = workqueues.Known(s.registry.hasActivity, connected, TaskActivity)
	return s
}

// Run claims work items until ctx ends, then lets those under way finish within the grace
// period.
func (s *Service) Run(ctx context.Context) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s.mu.Lock()
	s.running = work
	s.mu.Unlock()
	var loops sync.WaitGroup
	loops.Go(func() { s.take(ctx, s.orchestrationPlaces, s.takeOrchestrations) })
	loops.Go(func() { s.take(ctx, s.activityPlaces, s.takeActivities) })
	if s.opts.Jobs != nil {
		loops.Go(func() { s.take(ctx, s.jobPlaces, s.takeJobActivities) })
	}
	renewing, stopRenewing := context.WithCancel(work)
	var renewal sync.WaitGroup
	renewal.Go(func() { s.renew(renewing) })
	<-ctx.Done()
	loops.Wait()
	s.drain(s.opts.Grace)
	close(s.drained)
	stop()
	for _, h := range s.startedTaskHubs() {
		h.stop()
	}
	stopRenewing()
	renewal.Wait()
}

// unavailablePause is the time between two claims while the database is not available.
const unavailablePause = time.Second

// take claims as many work items as there are free places, repeatedly until ctx ends.
func (s *Service) take(ctx context.Context, in *places.Places, some func(ctx context.Context, most int) (taken int, err error)) {
	for {
		n := in.Take(ctx)
		if n == 0 {
			return
		}
		taken, err := some(ctx, n)
		in.GiveBack(n - taken)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("cannot take orchestrations", slog.Any("error", err))
			_ = sleep.For(ctx, unavailablePause) // or until ctx ends
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (s *Service) takeOrchestrations(ctx context.Context, most int) (int, error) {
	var orchestrations []OrchestrationItem
	err := s.orchestrationPlaces.Claim(ctx, func(ctx context.Context, room places.Room) (err error) {
		orchestrations, err = s.store.ClaimOrchestrations(ctx, ClaimRequest{Max: most, Lock: s.opts.Lock, Taker: s.takesOrchestrations, Room: room})
		return err
	})
	for i := range orchestrations {
		s.hold(orchestrations[i].Token, &heldItem{orchestration: &orchestrations[i]})
		if h := s.taskHub(orchestrations[i].Tenant); orchestrations[i].LostDeliveries >= maxLostDeliveries {
			go h.failPoison(ctx, &orchestrations[i]) // drain waits for it
		} else {
			h.orchestrations <- &orchestrations[i]
		}
	}
	return len(orchestrations), err
}

// maxSubmits bounds the jobs that are submitted at once.
const maxSubmits = 256

func (s *Service) takeActivities(ctx context.Context, most int) (int, error) {
	var activities []ActivityItem
	err := s.activityPlaces.Claim(ctx, func(ctx context.Context, room places.Room) (err error) {
		activities, err = s.store.ClaimActivities(ctx, ClaimRequest{Max: most, Lock: s.opts.Lock, Taker: s.takesActivities, Room: room})
		return err
	})
	for i := range activities {
		a := &activities[i]
		s.hold(a.Token, &heldItem{activity: a})
		if h := s.taskHub(a.Tenant); a.Event.Blob != "" && len(a.Event.Bytes) == 0 {
			go h.fetch(ctx, a) // drain waits for it
		} else {
			h.activities <- a
		}
	}
	return len(activities), err
}

func (s *Service) takeJobActivities(ctx context.Context, most int) (int, error) {
	activities, err := s.store.ClaimActivities(ctx, ClaimRequest{Max: most, Lock: s.opts.Lock, Taker: takesJobs})
	for i := range activities {
		s.hold(activities[i].Token, &heldItem{activity: &activities[i]})
		go s.taskHub(activities[i].Tenant).callTask(ctx, &activities[i]) // drain waits for it
	}
	return len(activities), err
}

// takesJobs takes the activities that are jobs.
var takesJobs = workqueues.Only(TaskActivity)

// renew extends the locks of all held work items. An item whose lock is lost is cancelled.
func (s *Service) renew(ctx context.Context) {
	ticker := time.NewTicker(s.opts.Lock / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.renewOnce(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (s *Service) renewOnce(ctx context.Context) {
	var orchestrations []*OrchestrationItem
	var activities []*ActivityItem
	s.mu.Lock()
	for _, h := range s.held {
		if h.orchestration != nil {
			orchestrations = append(orchestrations, h.orchestration)
		} else {
			activities = append(activities, h.activity)
		}
	}
	s.mu.Unlock()
	if len(orchestrations)+len(activities) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Lock/3)
	defer cancel()
	lost, err := s.store.RenewItems(ctx, orchestrations, activities, s.opts.Lock)
	if err != nil {
		s.log.Warn("cannot renew the locks of orchestrations", slog.Any("error", err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for token := range lost {
		if h := s.held[token]; h != nil {
			h.cancel(forebay.ErrLockLost)
		}
	}
}

// taskHub returns the task hub of a tenant, and makes it if there is none.
func (s *Service) taskHub(tenant int64) *taskHub {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.taskHubs[tenant]
	if h == nil {
		h = newTaskHub(s, tenant)
		s.taskHubs[tenant] = h
	}
	if s.running != nil && !h.started && !s.stopped {
		h.start(s.running)
	}
	return h
}

func (s *Service) startedTaskHubs() (hubs []*taskHub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.taskHubs {
		if h.started {
			hubs = append(hubs, h)
		}
	}
	return hubs
}
