package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
)

// Bounds of what a label may be. Queues, tasks and deployments come from the configuration; tenants, the functions of
// workers, error codes and the combinations of all may grow, so whatever comes after so many is "other".
const (
	maxTenants    = 200
	maxFunctions  = 200 // orchestrators, and as many activities
	maxErrorTypes = 100
	maxSeries     = 5000 // of one metric
	other         = "other"
	otherError    = "_OTHER" // as the conventions name it
)

// known admits the first so many values of a label.
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

// labelling says what a K means as labels.
type labelling[K comparable] struct {
	bound func(K) K                    // to what they may be; nil: they may be anything
	rest  K                            // of all series that there is no place for
	attrs func(K) []attribute.KeyValue // those without a value are left out
}

// vector is one metric's series, by their labels.
type vector[K comparable] struct {
	*family
	labels labelling[K]
	mu     sync.Mutex // held to add one
	made   atomic.Pointer[map[K]*series]
}

func newVector[K comparable](r *recorder, f spec, l labelling[K]) *vector[K] {
	v := &vector[K]{family: &family{spec: f}, labels: l}
	v.made.Store(&map[K]*series{})
	r.add(v.family)
	return v
}

// of returns the series with those labels, without waiting for anybody once it is there.
func (v *vector[K]) of(key K) *series {
	if s := (*v.made.Load())[key]; s != nil {
		return s
	}
	if v.labels.bound != nil {
		key = v.labels.bound(key)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	made := *v.made.Load()
	if len(made) >= maxSeries && made[key] == nil {
		key = v.labels.rest
	}
	s := made[key]
	if s == nil {
		s = v.series(present(v.labels.attrs(key)))
		made = maps.Clone(made)
		made[key] = s
		v.made.Store(&made)
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
