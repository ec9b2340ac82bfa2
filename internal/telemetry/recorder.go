package telemetry

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// recorder keeps the counters and histograms of jobs and gives them to the SDK's readers at
// collection. The SDK's own instruments would cost a job ten times as much. With known labels,
// counting here is an atomic addition.
type recorder struct {
	scope instrumentation.Scope
	began time.Time

	mu       sync.Mutex
	families []*family
}

var _ sdkmetric.Producer = (*recorder)(nil)

func (r *recorder) add(f *family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.families = append(r.families, f)
}

// spec describes a metric: a counter, or a histogram if it has bounds.
type spec struct {
	name, unit, description string
	bounds                  []float64
	whole                   bool // a counter of whole numbers
}

// family is a metric with all its series.
type family struct {
	spec
	mu  sync.Mutex
	all []*series
}

// series counts what has the same set of labels.
type series struct {
	attrs   attribute.Set
	bounds  []float64
	sum     atomic.Uint64   // the bits of a float64
	buckets []atomic.Uint64 // for a histogram; one more than bounds
}

func (f *family) series(attrs attribute.Set) *series {
	s := &series{attrs: attrs, bounds: f.bounds}
	if f.bounds != nil {
		s.buckets = make([]atomic.Uint64, len(f.bounds)+1)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, s)
	return s
}

// add adds v to a counter.
func (s *series) add(v float64) {
	for {
		old := s.sum.Load()
		if s.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// record adds an observation to a histogram. A bucket counts values up to and including its bound.
func (s *series) record(v float64) {
	at := 0
	for at < len(s.bounds) && v > s.bounds[at] {
		at++
	}
	s.buckets[at].Add(1)
	s.add(v)
}

// since records the seconds that have passed.
func (s *series) since(at time.Time) { s.record(time.Since(at).Seconds()) }

// Produce implements sdkmetric.Producer. It leaves out metrics without series.
func (r *recorder) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	r.mu.Lock()
	families := slices.Clone(r.families)
	r.mu.Unlock()
	all := metricdata.ScopeMetrics{Scope: r.scope}
	now := time.Now()
	for _, f := range families {
		if data := f.collect(r.began, now); data != nil {
			all.Metrics = append(all.Metrics, metricdata.Metrics{Name: f.name, Unit: f.unit, Description: f.description, Data: data})
		}
	}
	return []metricdata.ScopeMetrics{all}, nil
}

func (f *family) collect(began, now time.Time) metricdata.Aggregation {
	f.mu.Lock()
	list := slices.Clone(f.all)
	f.mu.Unlock()
	switch {
	case len(list) == 0:
		return nil
	case f.bounds != nil:
		points := make([]metricdata.HistogramDataPoint[float64], len(list))
		for i, s := range list {
			points[i] = s.histogram(began, now)
		}
		return metricdata.Histogram[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality}
	case f.whole:
		points := make([]metricdata.DataPoint[int64], len(list))
		for i, s := range list {
			points[i] = metricdata.DataPoint[int64]{Attributes: s.attrs, StartTime: began, Time: now, Value: int64(math.Float64frombits(s.sum.Load()))}
		}
		return metricdata.Sum[int64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	}
	points := make([]metricdata.DataPoint[float64], len(list))
	for i, s := range list {
		points[i] = metricdata.DataPoint[float64]{Attributes: s.attrs, StartTime: began, Time: now, Value: math.Float64frombits(s.sum.Load())}
	}
	return metricdata.Sum[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
}

func (s *series) histogram(began, now time.Time) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{Attributes: s.attrs, StartTime: began, Time: now,
		Bounds: s.bounds, BucketCounts: make([]uint64, len(s.buckets)), Sum: math.Float64frombits(s.sum.Load())}
	for i := range s.buckets {
		p.BucketCounts[i] = s.buckets[i].Load()
		p.Count += p.BucketCounts[i]
	}
	return p
}
