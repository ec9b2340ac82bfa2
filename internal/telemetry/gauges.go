package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/forebayhq/forebay/internal/store"
)

// Gauge is a number that is read when somebody asks for metrics.
type Gauge struct {
	Name, Unit, Description string
	Labels                  []attribute.Key
}

// Gauge registers how a gauge is read: read is called at each collection, with a function that takes one
// value and its labels, in the gauge's order. It must not wait for anything.
func (t *Telemetry) Gauge(g Gauge, read func(observe func(value float64, labels ...string))) error {
	if t == nil || t.meter == nil {
		return nil
	}
	tenants := newKnown(maxTenants, other)
	_, err := t.meter.Float64ObservableGauge(g.Name, metric.WithUnit(g.Unit), metric.WithDescription(g.Description),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			read(func(value float64, labels ...string) {
				attrs := make([]attribute.KeyValue, 0, len(g.Labels))
				for i, key := range g.Labels[:min(len(labels), len(g.Labels))] {
					if key == keyTenant {
						labels[i] = tenants.admit(labels[i])
					}
					attrs = append(attrs, key.String(labels[i]))
				}
				o.Observe(value, metric.WithAttributes(attrs...))
			})
			return nil
		}))
	return err
}

// DeploymentReading is a deployment as this process sees it.
type DeploymentReading struct {
	Name     string
	InFlight int64
	Paused   bool
}

// Deployments registers the gauges of deployments.
func (t *Telemetry) Deployments(read func() []DeploymentReading) error {
	err := t.Gauge(Gauge{deploymentInFlight, "{call}", "Calls of the deployment under way in this process.", []attribute.Key{keyDeployment}},
		func(observe func(float64, ...string)) {
			for _, d := range read() {
				observe(float64(d.InFlight), d.Name)
			}
		})
	if err != nil {
		return err
	}
	return t.Gauge(Gauge{deploymentPaused, "", "1 while this process leaves the deployment alone, for its quota was used up.", []attribute.Key{keyDeployment}},
		func(observe func(float64, ...string)) {
			for _, d := range read() {
				paused := 0.0
				if d.Paused {
					paused = 1
				}
				observe(paused, d.Name)
			}
		})
}

const (
	// depthLimit is how far a queue's messages are counted, in each lane and priority; it takes some 20 ms.
	depthLimit = 100_000
	// depthAge is how long a count is used again, so that several who scrape cost no more than one.
	depthAge = 5 * time.Second
	// depthTimeout bounds a count.
	depthTimeout = 5 * time.Second
)

// Queues registers the gauges of what stands in the queues. It is counted when somebody asks, by one
// look, and not at all while nobody does.
func (t *Telemetry) Queues(count func(ctx context.Context, limit int64) ([]store.Depth, error)) error {
	if t == nil || t.meter == nil {
		return nil
	}
	var errs [3]error
	var messages, retrying metric.Int64ObservableGauge
	var oldest metric.Float64ObservableGauge
	messages, errs[0] = t.meter.Int64ObservableGauge(queueMessages, metric.WithUnit("{message}"),
		metric.WithDescription("Jobs in the queue by state, of all tenants, counted up to 100,000 in each lane and priority."))
	retrying, errs[1] = t.meter.Int64ObservableGauge(queueRetrying, metric.WithUnit("{message}"),
		metric.WithDescription("Those of them that are in the retry lane, in whatever state."))
	oldest, errs[2] = t.meter.Float64ObservableGauge(queueOldestAge, metric.WithUnit("s"),
		metric.WithDescription("Since when the job has been ready that has been so longest; 0: none is."))
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	c := &counted{count: count, log: t.log}
	_, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		for _, d := range c.get(ctx) {
			queue := keyQueue.String(d.Queue)
			for state, n := range map[string]int64{
				"ready": d.Ready, "scheduled": d.Scheduled, "locked": d.Locked, "dead_letter": d.DeadLetter, "quarantined": d.Quarantine,
			} {
				o.ObserveInt64(messages, n, metric.WithAttributes(queue, keyState.String(state)))
			}
			o.ObserveInt64(retrying, d.Retrying, metric.WithAttributes(queue))
			o.ObserveFloat64(oldest, d.OldestAge.Seconds(), metric.WithAttributes(queue))
		}
		return nil
	}, messages, retrying, oldest)
	return err
}

// counted remembers a count for a while.
type counted struct {
	count func(ctx context.Context, limit int64) ([]store.Depth, error)
	log   *slog.Logger

	mu     sync.Mutex
	at     time.Time
	depths []store.Depth
}

// get counts, unless that was done just now. Of queues that cannot be counted there is no number at all.
func (c *counted) get(ctx context.Context) []store.Depth {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < depthAge {
		return c.depths
	}
	ctx, cancel := context.WithTimeout(ctx, depthTimeout)
	defer cancel()
	depths, err := c.count(ctx, depthLimit)
	if err != nil && ctx.Err() == nil {
		c.log.Warn("cannot count what stands in the queues", slog.Any("error", err))
	}
	c.at, c.depths = time.Now(), depths
	return depths
}
