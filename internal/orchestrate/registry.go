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

// ActivityFunc carries an activity out. Its result is what JSON makes of it.
type ActivityFunc func(ctx context.Context, input json.RawMessage) (any, error)

// Registry holds the Go functions that a process knows.
type Registry struct {
	mu            sync.RWMutex
	engine        *task.TaskRegistry
	orchestrators map[string]bool
	ordered       map[string]OrderedFunc // those of orchestrators that are told the order of ends
	activities    map[string]ActivityFunc
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{engine: task.NewTaskRegistry(), orchestrators: map[string]bool{}, ordered: map[string]OrderedFunc{}, activities: map[string]ActivityFunc{}}
}

// maxFunctionName bounds the names of orchestrators and activities: those of other languages are often long.
const MaxNameBytes = 200

// AddOrchestrator registers a version of an orchestrator; "" is one as well. New instances run the one that was added last,
// those that have begun the one they began with.
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

// shownNames is how many of the orchestrators there are an error names.
const shownNames = 10

// unknown is the error of an orchestrator that there is not.
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

// Call is which call of an activity a function is carrying out.
type Call struct {
	InstanceID string
	EventID    int // of the event that scheduled it: with the instance, the identity of the call over all attempts
	Attempt    int
}

type callKey struct{}

// CallOf returns the call that an activity's context belongs to.
func CallOf(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(Call)
	return c, ok
}

// NonRetryable marks an error of an activity after which it is not tried again.
type NonRetryable struct{ Err error }

func (e *NonRetryable) Error() string { return e.Err.Error() }
func (e *NonRetryable) Unwrap() error { return e.Err }

// errorType names an error for retry policies: the code of one of ours, else its Go type.
func errorType(err error) string {
	if code := forebay.CodeOf(err); code != forebay.CodeInternal {
		return string(code)
	}
	return fmt.Sprintf("%T", err)
}
