package telemetry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

func (m *metrics) ofOrchestrations(r *recorder) {
	labels := func(key, result attribute.Key) labelling[functionLabels] {
		names := newKnown(maxFunctions, other)
		return labelling[functionLabels]{
			bound: func(l functionLabels) functionLabels {
				l.name = names.admit(l.name)
				return l
			},
			rest: functionLabels{name: other},
			attrs: func(l functionLabels) []attribute.KeyValue {
				return []attribute.KeyValue{key.String(l.name), result.String(l.result)}
			},
		}
	}
	m.turns = newVector(r, counter(orchestrationTurns, "{turn}", "Turns of orchestrations that this process took."), labels(keyOrchestrator, keyOutcome))
	m.activities = newVector(r, counter(orchestrationActivities, "{attempt}", "Attempts of activities that ended. Of those that were lost only that is known."), labels(keyActivity, keyOutcome))
	m.orchestrationsEnded = newVector(r, counter(orchestrationsEnded, "{instance}", "Orchestrations that ended with a turn of this process."), labels(keyOrchestrator, keyStatus))
	// The series exists from the start, so that its first count is an increase.
	m.activities.of(functionLabels{result: orchestrate.ActivityLost})
}

// Orchestrations returns the observer of work items and activities, or nil without telemetry.
func (t *Telemetry) Orchestrations() func(orchestrate.ProcessedItem) {
	if t == nil || t.metrics == nil {
		return nil
	}
	m := t.metrics
	return func(taken orchestrate.ProcessedItem) {
		if taken.Kind == workqueues.Activities {
			m.activities.of(functionLabels{taken.Name, taken.Outcome}).add(1)
			return
		}
		m.turns.of(functionLabels{taken.Name, taken.Outcome}).add(1)
		if taken.Ended != "" {
			m.orchestrationsEnded.of(functionLabels{taken.Name, statusLabel(taken.Ended)}).add(1)
		}
	}
}

func statusLabel(s forebay.OrchestrationStatus) string { return strings.ToLower(string(s)) }

// openLimit is the largest count of instances that are not over.
const openLimit = 100_000

// OpenOrchestrations registers the gauges of instances that are not over. They are read at each
// collection.
func (t *Telemetry) OpenOrchestrations(count func(ctx context.Context, limit int64) ([]orchestrate.OpenCount, error), oldest func(context.Context) ([]orchestrate.OldestItem, error)) error {
	if t == nil || t.meter == nil {
		return nil
	}
	counts := newReading(t.readings, "orchestrations", func(ctx context.Context) ([]orchestrate.OpenCount, error) { return count(ctx, openLimit) })
	turns := newReading(t.readings, "turns of orchestrations", oldest)
	return errors.Join(
		t.gauge(gauge{orchestrationInstances, "{instance}", "Orchestrations that are not over by status, of all tenants, counted up to 100,000.", []attribute.Key{keyStatus}}, nil,
			func(observe func(float64, ...string)) {
				for _, c := range counts.get() {
					observe(float64(c.Instances), statusLabel(c.Status))
				}
			}),
		t.gauge(gauge{orchestrationOldestAge, "s", "Since when the turn of the orchestrator has been ready that has been so longest; 0: none is.", []attribute.Key{keyOrchestrator}}, newBounds(),
			func(observe func(float64, ...string)) {
				// The first one of those that share a label counts, which is the oldest.
				byAge := slices.SortedFunc(slices.Values(turns.get()), func(a, b orchestrate.OldestItem) int { return cmp.Compare(b.Age, a.Age) })
				for _, o := range byAge {
					observe(o.Age.Seconds(), o.Orchestrator)
				}
			}))
}
