package telemetry

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Bounds of what a label may be. Queues, tasks and deployments come from the configuration; tenants,
// error codes and the combinations of all may grow, so whatever comes after so many is "other".
const (
	maxTenants    = 200
	maxErrorTypes = 100
	maxSets       = 5000 // of labels, of one kind
	other         = "other"
	otherError    = "_OTHER" // as the conventions name it

	// maxSeries is the SDK's own bound, for one metric; nothing here comes near it.
	maxSeries = 4 * maxSets
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

// labels are one set of them, as both kinds of instruments take it: made once, for making it costs more
// than counting.
type labels struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// sets keeps the sets of labels that a K stands for.
type sets[K comparable] struct {
	mu    sync.RWMutex
	made  map[K]*labels
	bound func(K) K // to what labels may be
	rest  K         // for all there is no place for
	attrs func(K) []attribute.KeyValue
}

func newSets[K comparable](bound func(K) K, rest K, attrs func(K) []attribute.KeyValue) *sets[K] {
	return &sets[K]{made: map[K]*labels{}, bound: bound, rest: rest, attrs: attrs}
}

func (s *sets[K]) get(key K) *labels {
	s.mu.RLock()
	l := s.made[key]
	s.mu.RUnlock()
	if l != nil {
		return l
	}
	key = s.bound(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.made) >= maxSets && s.made[key] == nil {
		key = s.rest
	}
	if l = s.made[key]; l == nil {
		set := metric.WithAttributeSet(attribute.NewSet(present(s.attrs(key))...))
		l = &labels{add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
		s.made[key] = l
	}
	return l
}

// present leaves out labels without a value.
func present(attrs []attribute.KeyValue) []attribute.KeyValue {
	kept := attrs[:0]
	for _, a := range attrs {
		if a.Value.AsString() != "" {
			kept = append(kept, a)
		}
	}
	return kept
}
