// Package jobs is the life of a job: submit, claim, attempt, settle, retry, dead-letter, redrive,
// cancel.
//
// A [Service] decides what a valid job is and which payloads go to blob storage. Its [Worker]
// claims jobs and decides what a failed call leads to. The [Store] makes each decision durable in
// one transaction. Package dispatch makes the calls, and the API shows the rest.
//
// Which ready job goes next is decided in three steps. A scan of a subqueue (scan.go) finds ready
// jobs in the order of package flows. Package admission decides which of them may be called now.
// The claim locks those (claim_rows.go).
//
// # Tables
//
// jobs is the record as submitted, written once. messages holds one small hot row for each job
// that is not over, and for each that is set aside. outcomes says how the latest generation
// ended. attempts and events are appended. A job's status is not stored: it follows from which
// rows exist.
//
// # One column is the scheduler
//
// messages.visible is when a message may be delivered next. A scheduled start, a retry delay, a
// throttle pause and the end of a lock are all just that, so delivering needs no reaper and no
// timer wheel: an index on (lane, rank, visible) serves them all. A lane is a queue's main lane
// or one of its subqueues (retry, dead-letter, quarantine); moving a message is an update of its
// lane.
//
// # Claims wait in the writer
//
// A claim that finds nothing stays parked there. The writer knows for each lane when the next
// message becomes visible and sleeps until then; a submit wakes it in the same transaction.
// Nobody polls, and an idle server runs no statements but one look every 30 seconds, which is
// there in case the clock jumps. While a claim waits and nothing else is ready, a new job is
// handed over: its message is stored as one that is locked already.
//
// # Locks are tokens
//
// Each delivery gets a new random token. Every settlement is an update or delete WHERE seq = ?
// AND token = ?; no row changed is ErrLockLost and changes nothing. A job whose lock has expired
// may still be settled by its holder as long as nobody else was given it: the call is paid for,
// and the token proves that no other result exists. (A plain message's lock that has expired
// settles nothing, as in Service Bus.) outcomes has the job as primary key: the last guard of one
// result per generation.
//
// # Crashes
//
// The delivery count is written at the claim, so a job that kills its worker is counted. When an
// expired lock is claimed again, the attempt before is recorded as lost. At start-up the process
// takes the database file for itself, by a lock on <file>.lock and, on Linux, one on the file
// itself, which holds though somebody removes the first. Before and after each transaction it
// looks whether the database and its WAL are still the files it has open; if not, nothing is
// acknowledged any more until a restart. Whoever held locks before is dead, so they end at once
// and the backlog runs, within the queue's concurrency.
//
// # Events
//
// What happens to a job is a row of events, written with the change. The two events of every job
// that goes well, accepted and succeeded, are not stored: they follow from the job and its
// outcome, which saves a tenth of the time a job costs.
//
// # Sessions of jobs
//
// Of the jobs of one session all but one have a visible at the end of time; when that one has
// ended for good, the transaction that ends it gives the next its turn. Claims know nothing of
// sessions. When a running job is cancelled its call may go on for a moment: the turn comes when
// the worker says that it is over, or when the voided lock would have ended.
//
// # Job events
//
// are published to the topic job-events of the job's tenant in the transaction of the change. A
// counter goes up with every change of a topic; while it stands still, that nobody subscribes is
// known without a look.
//
// # Cancel
//
// Cancel is one transaction: the message is deleted, which voids the worker's lock, and the
// outcome is written. Then the call in flight is aborted. Whatever the call still returns can no
// longer be recorded; the worker only adds to the cancelled attempt which deployment it was and
// what it had used.
package jobs

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/payload"
	"github.com/forebayhq/forebay/internal/retry"
)

// Queue is the configuration of one queue, with every value set.
type Queue struct {
	Name             string
	Concurrency      int
	LockDuration     time.Duration
	MaxDeliveryCount int
	Retry            retry.Policy
	OnFailure        forebay.SetAside
	Tenants          []string // if not empty, only these may use it

	no   int64
	pace func() float64 // see PaceRetries
}

// PaceRetries sets the function that returns how many retries a second the queue's retry budget
// allows now, for estimates. 0: any number. It must be set before the service is used.
func (q *Queue) PaceRetries(pace func() float64) { q.pace = pace }

// Options makes a Service.
type Options struct {
	Store         *Store
	Payloads      *payload.Store
	Queues        []Queue // DefaultQueue must be among them
	MaxInputBytes int64
	Observer      Observer      // nil: nobody watches
	Limits        *limits.Meter // judges what clients submit; nil: no limits
	Settings
}

// Settings are options that can be changed while the service is in use.
type Settings struct {
	Tasks       map[string]forebay.Task
	Deployments Deployments // nil: nothing holds calls back
	// Weights are the tenants' shares of what a queue delivers, by name. Other tenants have 1.
	Weights map[string]float64
}

// settings are Settings with numbers for names. They are never changed, only replaced.
type settings struct {
	tasks       map[string]forebay.Task
	deployments Deployments
	weights     map[int64]float64
}

// liveSettings are the settings in use.
type liveSettings struct{ atomic.Pointer[settings] }

// Service does what clients ask for. All methods are safe for concurrent use. They return
// *forebay.Error values for what a caller did wrong, and see only the given tenant's jobs.
type Service struct {
	store    *Store
	payloads *payload.Store
	queues   queueSet
	maxInput int64
	observer Observer
	settings liveSettings
	limits   *limits.Meter
	views    jobViews
	running  runningCalls
}

// New makes the service and the queues it is configured with.
func New(ctx context.Context, opts Options) (*Service, error) {
	s := &Service{
		store: opts.Store, payloads: opts.Payloads, maxInput: opts.MaxInputBytes, observer: opts.Observer, limits: opts.Limits,
		queues: queueSet{byName: map[string]*Queue{}, byNo: map[int64]*Queue{}},
	}
	s.views = jobViews{
		queues: &s.queues, settings: &s.settings, admission: opts.Store.Admission,
		backlog: &backlog.Reader{Queues: opts.Store.Store, Admission: opts.Store.Admission},
	}
	s.store.OnCancelled(s.running.abortRunning)
	apply, err := s.Prepare(ctx, opts.Settings)
	if err != nil {
		return nil, err
	}
	apply()
	for _, q := range opts.Queues {
		no, err := s.store.EnsureQueue(ctx, q.Name)
		if err != nil {
			return nil, err
		}
		q.no = no
		s.queues.byName[q.Name] = &q
		s.queues.byNo[no] = &q
	}
	return s, nil
}

// Prepare returns a function that changes the settings. Calls under way end with the settings
// they began with.
func (s *Service) Prepare(ctx context.Context, to Settings) (apply func(), err error) {
	next := &settings{tasks: to.Tasks, deployments: to.Deployments, weights: map[int64]float64{}}
	for name, weight := range to.Weights {
		no, err := s.store.EnsureTenant(ctx, name)
		if err != nil {
			return nil, err
		}
		next.weights[no] = weight
	}
	return func() { s.settings.Store(next) }, nil
}

// Tasks returns the tasks this process knows, by name.
func (s *Service) Tasks() []forebay.Task {
	tasks := s.settings.Load().tasks
	list := make([]forebay.Task, 0, len(tasks))
	for _, task := range tasks {
		list = append(list, task)
	}
	slices.SortFunc(list, func(a, b forebay.Task) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Part is a part of the store, and whether it works.
type Part = db.Part

// Health reports which parts of the store work right now, within seconds and at little cost.
func (s *Service) Health(ctx context.Context) []Part { return s.store.Health(ctx) }

const jobPrefix = "job_"

// knownID reports whether id could be a job's.
func knownID(id string) bool {
	rest, ok := strings.CutPrefix(id, jobPrefix)
	return ok && len(rest) == 26 && forebay.ValidName(rest)
}
