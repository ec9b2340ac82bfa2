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
	Spare            bool     // its jobs below the default priority wait for others that want the same deployment
	NoDeadLetters    bool     // a job that fails for good is over
	Own              bool     // only this process has its callers, and serves it in any role; no dead letters
	OwnOf            string   // of one's own: it takes only jobs of tasks whose Queue is this

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
	queueService
	store    *Store
	payloads *payload.Store
	queues   queueSet
	maxInput int64
	observer Observer
	settings liveSettings
	limits   *limits.Meter
	views    jobViews
	running  runningCalls
	lists
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
	s.lists = lists{store: s.store, queues: &s.queues, views: &s.views}
	s.queueService = queueService{opts.Store, &s.queues, s.views.backlog}
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

// Tasks returns the tasks this process knows, by name, without those of calls that wait here.
func (s *Service) Tasks() []forebay.Task {
	tasks := s.settings.Load().tasks
	list := make([]forebay.Task, 0, len(tasks))
	for _, task := range tasks {
		if forebay.ValidName(task.Name) {
			list = append(list, task)
		}
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
