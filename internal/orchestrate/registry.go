package orchestrate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
)

// ActivityFunc executes an activity. Its result is encoded as JSON.
type ActivityFunc func(ctx context.Context, input json.RawMessage) (any, error)

// Registry holds the Go functions that a process knows.
type Registry struct {
	mu            sync.RWMutex
	engine        *task.TaskRegistry
	orchestrators map[string]bool
	ordered       map[string]OrderedFunc // orchestrators registered with AddOrdered
	activities    map[string]ActivityFunc
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{engine: task.NewTaskRegistry(), orchestrators: map[string]bool{}, ordered: map[string]OrderedFunc{}, activities: map[string]ActivityFunc{}}
}

// MaxNameBytes bounds the names of orchestrators and activities. Those of other languages are
// often long.
const MaxNameBytes = 200

// AddOrchestrator registers a version of an orchestrator; "" is a version too. New instances run
// the version that was added last. Open instances run the version they began with.
func (r *Registry) AddOrchestrator(name, version string, f task.Workflow) error {
	if !forebay.ValidText(name, MaxNameBytes) {
		return forebay.Invalid("orchestrator", "%q cannot be a name", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.engine.AddVersionedWorkflowN(name, version, true, f); err != nil || r.ordered[name] != nil {
		return forebay.Invalid("orchestrator", "%s, version %q, is registered twice", name, version)
	}
	r.orchestrators[name] = true
	return nil
}

// AddActivity registers an activity.
func (r *Registry) AddActivity(name string, f ActivityFunc) error {
	if !forebay.ValidText(name, MaxNameBytes) {
		return forebay.Invalid("activity", "%q cannot be a name", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.activities[name] != nil {
		return forebay.Invalid("activity", "%s is registered twice", name)
	}
	r.activities[name] = f
	return nil
}

func (r *Registry) hasOrchestrator(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.orchestrators[name]
}

// shownNames is how many known orchestrators an error names.
const shownNames = 10

// unknown is the error for an orchestrator that is not registered.
func (r *Registry) unknown(name string) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := slices.Sorted(maps.Keys(r.orchestrators))
	there := "; there are: " + strings.Join(names[:min(len(names), shownNames)], ", ")
	if len(names) > shownNames {
		there += ", …"
	}
	if len(names) == 0 {
		there = ", nor any other: they are Go functions of a program that embeds the server, or of workers that connect to orchestrations.grpc.address"
	}
	return forebay.Errorf(forebay.CodeUnknownOrchestrator, "there is no orchestrator %s%s", name, there)
}

func (r *Registry) hasActivity(name string) bool { return r.activity(name) != nil }

func (r *Registry) activity(name string) ActivityFunc {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.activities[name]
}

// Call identifies the activity call that a function executes.
type Call struct {
	InstanceID string
	// EventID is the id of the scheduling event. With the instance it identifies the call over all
	// attempts.
	EventID int
	Attempt int
}

type callKey struct{}

// CallOf returns the call that an activity's context belongs to.
func CallOf(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(Call)
	return c, ok
}

// NonRetryable marks an error of an activity that must not be retried.
type NonRetryable struct{ Err error }

func (e *NonRetryable) Error() string { return e.Err.Error() }
func (e *NonRetryable) Unwrap() error { return e.Err }

// errorType is the type of an error for retry policies: the code of a forebay.Error, or else the
// Go type.
func errorType(err error) string {
	if code := forebay.CodeOf(err); code != forebay.CodeInternal {
		return string(code)
	}
	return fmt.Sprintf("%T", err)
}
