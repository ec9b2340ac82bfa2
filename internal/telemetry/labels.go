package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
)

// Bounds of label values. Queues, tasks and deployments come from the configuration. Tenants,
// functions of workers, error codes and combinations of labels can grow without bound. Values
// above a limit become "other".
const (
	maxTenants    = 200
	maxFunctions  = 200 // of orchestrators, and of activities
	maxErrorTypes = 100
	maxSeries     = 5000 // of one metric
	other         = "other"
	otherError    = "_OTHER" // the name in the conventions
)

// known accepts the first values of a label up to a limit.
type known struct {
	mu     sync.Mutex
	values map[string]bool
	most   int
	rest   string
}

func newKnown(most int, rest string) *known {
	return &known{values: map[string]bool{}, most: most, rest: rest}
}

func (k *known) admit(value string) string {
	if value == "" {
		return value
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.values[value]:
		return value
	case len(k.values) >= k.most:
		return k.rest
	}
	k.values[value] = true
	return value
}

// labelling turns a K into labels.
type labelling[K comparable] struct {
	bound func(K) K                    // limits the values; nil: no limit
	rest  K                            // labels of all series above the limit
	attrs func(K) []attribute.KeyValue // labels without a value are omitted
}

// vector holds the series of one metric by their labels.
type vector[K comparable] struct {
	*family
	labels labelling[K]
	mu     sync.Mutex // held while a series is added
	all    atomic.Pointer[map[K]*series]
}

func newVector[K comparable](r *recorder, f spec, l labelling[K]) *vector[K] {
	v := &vector[K]{family: &family{spec: f}, labels: l}
	v.all.Store(&map[K]*series{})
	r.add(v.family)
	return v
}

// of returns the series with those labels. It takes no lock for a series that exists.
func (v *vector[K]) of(key K) *series {
	if s := (*v.all.Load())[key]; s != nil {
		return s
	}
	if v.labels.bound != nil {
		key = v.labels.bound(key)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	all := *v.all.Load()
	if len(all) >= maxSeries && all[key] == nil {
		key = v.labels.rest
	}
	s := all[key]
	if s == nil {
		s = v.series(present(v.labels.attrs(key)))
		all = maps.Clone(all)
		all[key] = s
		v.all.Store(&all)
	}
	return s
}

// present leaves out labels without a value.
func present(attrs []attribute.KeyValue) attribute.Set {
	kept := attrs[:0]
	for _, a := range attrs {
		if a.Value.AsString() != "" {
			kept = append(kept, a)
		}
	}
	return attribute.NewSet(kept...)
}
