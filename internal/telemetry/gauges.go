package telemetry

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/backlog"
	"github.com/forebayhq/forebay/internal/db"
)

// gauge is a number that is read at each collection.
type gauge struct {
	name, unit, description string
	labels                  []attribute.Key
}

// bounds are the label values that gauges show by name. Gauges that are read together share them.
type bounds map[attribute.Key]*known

func newBounds() bounds {
	return bounds{keyTenant: newKnown(maxTenants, other), keyID: newKnown(maxTenants, other), keyOrchestrator: newKnown(maxFunctions, other)}
}

// gauge registers how a gauge is read. Each collection calls read with a function that takes one
// value and its labels, in the gauge's order. If several share their labels, the first one counts.
func (t *Telemetry) gauge(g gauge, bounded bounds, read func(observe func(value float64, labels ...string))) error {
	_, err := t.meter.Float64ObservableGauge(g.name, metric.WithUnit(g.unit), metric.WithDescription(g.description),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			seen := map[attribute.Distinct]bool{}
			read(func(value float64, labels ...string) {
				attrs := make([]attribute.KeyValue, 0, len(g.labels))
				for i, key := range g.labels {
					value := labels[i]
					if known := bounded[key]; known != nil {
						value = known.admit(value)
					}
					attrs = append(attrs, key.String(value))
				}
				set := attribute.NewSet(attrs...)
				if !seen[set.Equivalent()] {
					seen[set.Equivalent()] = true
					o.Observe(value, metric.WithAttributeSet(set))
				}
			})
			return nil
		}))
	return err
}

// Deployments registers the gauges of deployments: the running calls of this process by
// deployment, and what all processes know together. list is called at each collection.
func (t *Telemetry) Deployments(inFlight func() map[string]int64, list func(context.Context) ([]forebay.Deployment, error)) error {
	if t == nil || t.meter == nil {
		return nil
	}
	err := t.gauge(gauge{deploymentInFlight, "{call}", "Calls of the deployment under way in this process.", []attribute.Key{keyDeployment}}, nil,
		func(observe func(float64, ...string)) {
			for name, n := range inFlight() {
				observe(float64(n), name)
			}
		})
	known := newReading(t.readings, "deployments", list)
	each := func(g gauge, read func(d *forebay.Deployment, observe func(float64, ...string))) error {
		return t.gauge(g, nil, func(observe func(float64, ...string)) {
			for _, d := range known.get() {
				read(&d, observe)
			}
		})
	}
	// A dimension without a known limit has no value.
	amounts := func(a, limit forebay.QuotaAmount, name string, observe func(float64, ...string)) {
		for dimension, n := range map[string][2]int64{
			"tokens": {a.Tokens, limit.Tokens}, "output_tokens": {a.OutputTokens, limit.OutputTokens}, "requests": {a.Requests, limit.Requests},
		} {
			if n[1] > 0 {
				observe(float64(n[0]), name, dimension)
			}
		}
	}
	return errors.Join(err,
		each(gauge{deploymentPaused, "", "1 while nothing calls the deployment, on an operator's word or as its provider asked.", []attribute.Key{keyDeployment}},
			func(d *forebay.Deployment, observe func(float64, ...string)) {
				paused := 0.0
				if d.Paused || d.PausedUntil != nil {
					paused = 1
				}
				observe(paused, d.Name)
			}),
		each(gauge{deploymentDenied, "", "1 while the deployment turns every call away, for its key, its account or its name.", []attribute.Key{keyDeployment}},
			func(d *forebay.Deployment, observe func(float64, ...string)) {
				denied := 0.0
				if d.BreakerReason != "" {
					denied = 1
				}
				observe(denied, d.Name)
			}),
		each(gauge{breakerState, "", "State of the circuit breaker: 0 closed, 1 half-open, 2 open.", []attribute.Key{keyDeployment}}, func(d *forebay.Deployment, observe func(float64, ...string)) {
			observe(map[forebay.BreakerState]float64{forebay.BreakerHalfOpen: 1, forebay.BreakerOpen: 2}[d.Breaker], d.Name)
		}),
		each(gauge{quotaLimit, "", "What the deployment is held to a minute, as configured or learned.", []attribute.Key{keyDeployment, keyDimension}}, func(d *forebay.Deployment, observe func(float64, ...string)) {
			amounts(d.Limit, d.Limit, d.Name, observe)
		}),
		each(gauge{quotaUsed, "", "What was reserved of it in the last minute.", []attribute.Key{keyDeployment, keyDimension}}, func(d *forebay.Deployment, observe func(float64, ...string)) {
			amounts(d.Used, d.Limit, d.Name, observe)
		}))
}

// Database registers the gauges of a SQLite file, which are read at each collection. Other
// databases have no values.
func (t *Telemetry) Database(space func(context.Context) (space db.Space, sqlite bool, err error)) error {
	if t == nil || t.meter == nil {
		return nil
	}
	known := newReading(t.readings, "the database's size", func(ctx context.Context) ([]db.Space, error) {
		now, sqlite, err := space(ctx)
		if err != nil || !sqlite {
			return nil, err
		}
		return []db.Space{now}, nil
	})
	each := func(name, about string, value func(db.Space) int64) error {
		return t.gauge(gauge{name: name, unit: "By", description: about}, nil, func(observe func(float64, ...string)) {
			for _, space := range known.get() {
				observe(float64(value(space)))
			}
		})
	}
	return errors.Join(
		each(databaseSize, "Size of the SQLite file.", func(s db.Space) int64 { return s.Bytes }),
		each(databaseFree, "Of it, space that deleted rows have left.", func(s db.Space) int64 { return s.FreeBytes }))
}

// BudgetUse is the limit, usage and reservation of a tenant or one of its API keys in a period
// (day, month). The unit is US dollars or tokens.
type BudgetUse struct {
	Tenant, Key, Period string // Key "": the tenant's own
	Tokens              bool
	Limit, Used         float64
}

// share is the part of the budget that is used.
func (b BudgetUse) share() float64 {
	if b.Used == 0 {
		return 0
	}
	return b.Used / b.Limit
}

// Budgets registers the gauges of budgets, which are read at each collection. Budgets of keys have
// their own metrics. Otherwise a sum over tenants would count the usage of a key twice. Those
// without names of their own show the budget that is used most: an alert looks for that.
func (t *Telemetry) Budgets(list func(context.Context) ([]BudgetUse, error)) error {
	if t == nil || t.meter == nil {
		return nil
	}
	known := newReading(t.readings, "budgets", func(ctx context.Context) ([]BudgetUse, error) {
		budgets, err := list(ctx)
		slices.SortStableFunc(budgets, func(a, b BudgetUse) int { return cmp.Compare(b.share(), a.share()) })
		return budgets, err
	})
	bounded := newBounds()
	each := func(name, unit, about string, ofKeys bool, value func(BudgetUse) float64) error {
		labels := []attribute.Key{keyTenant, keyPeriod}
		if ofKeys {
			labels = append(labels, keyID)
		}
		return t.gauge(gauge{name, unit, about, labels}, bounded, func(observe func(float64, ...string)) {
			for _, b := range known.get() {
				switch {
				case (b.Key != "") != ofKeys || b.Tokens != (unit == "{token}"):
				case ofKeys:
					observe(value(b), b.Tenant, b.Period, b.Key)
				default:
					observe(value(b), b.Tenant, b.Period)
				}
			}
		})
	}
	limit := func(b BudgetUse) float64 { return b.Limit }
	used := func(b BudgetUse) float64 { return b.Used }
	return errors.Join(
		each(budgetLimit, "{USD}", "What the tenant may spend in the period.", false, limit),
		each(budgetUsed, "{USD}", "What the tenant has spent and holds in the period.", false, used),
		each(budgetTokenLimit, "{token}", "Tokens that the tenant may use in the period.", false, limit),
		each(budgetTokensUsed, "{token}", "Tokens that the tenant has used and holds in the period.", false, used),
		each(budgetLimitOfKey, "{USD}", "What the API key may spend in the period.", true, limit),
		each(budgetUsedOfKey, "{USD}", "What the API key has spent and holds in the period.", true, used),
		each(budgetTokenLimitOfKey, "{token}", "Tokens that the API key may use in the period.", true, limit),
		each(budgetTokensUsedOfKey, "{token}", "Tokens that the API key has used and holds in the period.", true, used))
}

// DeploymentChanged counts a change of a deployment that a transaction of this process made.
func (t *Telemetry) DeploymentChanged(c forebay.DeploymentChange) {
	if t == nil || t.metrics == nil {
		return
	}
	t.metrics.changes.of(changeLabels{c.Deployment, c.Type}).add(1)
}

// depthLimit is the largest count of a queue's messages in each lane and priority. Counting that
// many takes some 20 ms.
const depthLimit = 100_000

// Queues registers the gauges of queue depths. One query counts all queues at each collection.
// Without collections nothing is counted.
func (t *Telemetry) Queues(count func(ctx context.Context, limit int64) ([]backlog.Depth, error)) error {
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
	c := newReading(t.readings, "queues", func(ctx context.Context) ([]backlog.Depth, error) { return count(ctx, depthLimit) })
	_, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, d := range c.get() {
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
