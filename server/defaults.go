package server

import (
	"maps"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/orchestrate/durabletask"
	"github.com/forebayhq/forebay/internal/retry"
)

// The logical models of the built-in tasks.
const (
	ModelChat      = "chat"
	ModelEmbedding = "embedding"
)

// WithDefaults returns the options with a value for each option that was left out. No other place
// applies defaults.
func (o Options) WithDefaults() Options {
	o.Database = or(o.Database, "sqlite:forebay.db")
	o.Role = or(o.Role, RoleAll)
	o.Listen = or(o.Listen, "127.0.0.1:8080")
	o.Log.Level = or(o.Log.Level, "info")
	o.Limits.MaxInputBytes = or(o.Limits.MaxInputBytes, forebay.DefaultMaxInputBytes)
	o.Limits.MaxMessageBytes = or(o.Limits.MaxMessageBytes, forebay.DefaultMaxMessageBytes)
	o.Limits.MaxOutputBytes = or(o.Limits.MaxOutputBytes, 10<<20)
	o.Limits.MemoryBytes = or(o.Limits.MemoryBytes, 64<<20)
	o.Limits.IdempotencyHours = or(o.Limits.IdempotencyHours, 168)
	o.Intake = maps.Clone(o.Intake)
	for name, in := range o.Intake {
		in.From, in.Tenant = or(in.From, name), or(in.Tenant, forebay.DefaultTenant)
		o.Intake[name] = in
	}
	o.Documents = o.Documents.withDefaults()
	o.OpenAI = o.OpenAI.withDefaults()
	o.UI = o.UI.withDefaults()
	o.ServiceBus = o.ServiceBus.withDefaults()
	o.Retention = o.Retention.withDefaults()
	o.Audit = o.Audit.withDefaults()
	o.Orchestrations.ConcurrentTurns = or(o.Orchestrations.ConcurrentTurns, 64)
	o.Orchestrations.ConcurrentActivities = or(o.Orchestrations.ConcurrentActivities, 256)
	o.Orchestrations.LockDuration = or(o.Orchestrations.LockDuration, time.Minute)
	o.Orchestrations.GRPC.MaxMessageBytes = or(o.Orchestrations.GRPC.MaxMessageBytes, durabletask.DefaultMaxMessage)
	o.ShutdownTimeout = or(o.ShutdownTimeout, 30*time.Second)
	o.Version = or(o.Version, "devel")
	o.defaultModels()
	queues := map[string]Queue{forebay.DefaultQueue: {}, CallsQueue: {}, ResponsesQueue: {}, BatchesQueue: {}}
	for name, q := range o.Queues {
		queues[name] = q
	}
	for name, q := range queues {
		switch name {
		case CallsQueue:
			q = callsDefaults(q)
		case ResponsesQueue:
			q.Concurrency = or(q.Concurrency, responsesConcurrency)
		case BatchesQueue:
			q = batchesDefaults(q)
		}
		queues[name] = q.withDefaults()
	}
	o.Queues = queues
	return o
}

// defaultModels makes the simulated deployment serve the built-in tasks if no deployment is
// configured.
func (o *Options) defaultModels() {
	if len(o.Deployments) == 0 {
		o.Deployments = []Deployment{{Name: "simulated", Provider: ProviderSim}}
	}
	if len(o.Models) == 0 {
		var names []string
		for _, d := range o.Deployments {
			names = append(names, d.Name)
		}
		o.Models = map[string]Model{ModelChat: InOrder(names...), ModelEmbedding: InOrder(names...)}
	}
}

func (q Queue) withDefaults() Queue {
	q.Concurrency = or(q.Concurrency, 64)
	q.LockDuration = or(q.LockDuration, time.Minute)
	q.MaxDeliveryCount = or(q.MaxDeliveryCount, 10)
	q.OnFailure = or(q.OnFailure, OnFailureDeadLetter)
	r, standard := &q.Retry, retry.Default
	r.Policy = or(r.Policy, string(standard.Backoff))
	r.First = or(r.First, standard.First)
	r.Coefficient = or(r.Coefficient, standard.Coefficient)
	r.Max = or(r.Max, standard.Max)
	r.Attempts = or(r.Attempts, standard.Attempts)
	r.Concurrency = or(r.Concurrency, standard.Concurrency)
	r.Budget = or(r.Budget, standard.Budget)
	return q
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
