package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/orchestrate/durabletask"
	"github.com/forebayhq/forebay/internal/stores"
)

// DurableFunction is an orchestrator or an activity.
type DurableFunction interface {
	register(*orchestrate.Registry) error
}

func (s *Server) openOrchestrations() error {
	o := s.options.Orchestrations
	registry := orchestrate.NewRegistry()
	for _, f := range s.options.Durable {
		if err := f.register(registry); err != nil {
			return err
		}
	}
	declared, err := s.options.workflows()
	if err != nil {
		return err
	}
	if s.declared, err = (&workflows{limit: s.options.Limits.MaxInputBytes}).register(registry, declared); err != nil {
		return err
	}
	retries := map[string]forebay.RetryPolicy{}
	for name, a := range o.Activities {
		retries[name] = a.Retry.policy()
	}
	s.orchestrations = orchestrate.New(orchestrate.Options{
		Store: s.store.Orchestrations, Blobs: s.blobs, Registry: registry, Logger: s.log, ConcurrentOrchestrations: o.ConcurrentTurns, ConcurrentActivities: o.ConcurrentActivities, Lock: o.LockDuration,
		Retries: retries, MaxBytes: s.options.Limits.MaxInputBytes, Grace: s.options.ShutdownTimeout,
		Limits: s.limits, Remote: o.GRPC.Address != "", Observe: s.telemetry.Orchestrations(),
		Jobs: calledJobs{s.jobs, s.store, s.options.Limits.MaxInputBytes},
	})
	s.durableTask = durabletask.New(durabletask.Options{Service: s.orchestrations, Logger: s.log, MaxBytes: s.options.Limits.MaxInputBytes,
		MaxMessage: o.GRPC.MaxMessageBytes, MemoryBytes: s.options.Limits.MemoryBytes, Limits: s.limits})
	return nil
}

// minGRPCConnections is the lowest limit of gRPC connections.
const minGRPCConnections = 16

// serveDurableTask serves the Durable Task protocol until ctx ends.
func (s *Server) serveDurableTask(ctx context.Context, listener net.Listener) error {
	o := durabletask.ServeOptions{Authenticate: s.keys.Authenticate, Hold: s.keys.Hold, Grace: max(time.Second, s.options.ShutdownTimeout), Connections: max(minGRPCConnections, s.options.Limits.connections()/4)}
	if s.certificate.Load() != nil {
		o.TLS = &tls.Config{GetCertificate: s.certificateNow, MinVersion: tls.VersionTLS12}
	}
	return s.durableTask.Serve(ctx, listener, o)
}

// GRPCAddr waits until Run listens and returns the address of the Durable Task protocol. It
// returns nil if the protocol is not served or ctx ends first.
func (s *Server) GRPCAddr(ctx context.Context) net.Addr {
	select {
	case <-s.ready:
		return s.grpcAddr
	case <-ctx.Done():
		return nil
	}
}

func (r ActivityRetry) policy() forebay.RetryPolicy {
	return forebay.RetryPolicy{MaxAttempts: r.Attempts, First: r.First, Coefficient: r.Coefficient, Max: r.Max, Jitter: r.Jitter, Timeout: r.Timeout, NonRetryable: r.NonRetryable}
}

func (o Orchestrations) validate(bad func(field, format string, args ...any)) {
	if o.ConcurrentTurns < 1 || o.ConcurrentTurns > 10_000 {
		bad("orchestrations.concurrent_turns", "goes from 1 to 10000")
	}
	if o.ConcurrentActivities < 1 || o.ConcurrentActivities > 10_000 {
		bad("orchestrations.concurrent_activities", "goes from 1 to 10000")
	}
	if o.LockDuration < time.Second || o.LockDuration > 5*time.Minute {
		bad("orchestrations.lock_duration", "goes from 1s to 5m")
	}
	if o.GRPC.Address != "" && !hostPort(o.GRPC.Address) {
		bad("orchestrations.grpc.address", "%.80q is not host:port", o.GRPC.Address)
	}
	if n := o.GRPC.MaxMessageBytes; n < 64<<10 || n > 512<<20 {
		bad("orchestrations.grpc.max_message_bytes", "goes from %d to %d", 64<<10, 512<<20)
	}
	for name, a := range o.Activities {
		field, r := fmt.Sprintf("orchestrations.activities.%.64s.retry.", name), a.Retry
		if r.Attempts < 0 || r.Attempts > forebay.MaxAttemptsLimit {
			bad(field+"attempts", "goes from 1 to %d", forebay.MaxAttemptsLimit)
		}
		if r.First < 0 || r.Max < 0 || r.Timeout < 0 {
			bad(field+"first", "is not negative, nor are max and timeout")
		}
		if r.Coefficient != 0 && r.Coefficient < 1 {
			bad(field+"coefficient", "is at least 1")
		}
		if r.Jitter < 0 || r.Jitter > 1 {
			bad(field+"jitter", "goes from 0 to 1")
		}
	}
}

// calledJobs are the jobs that are activities of orchestrations.
type calledJobs struct {
	jobs  *jobs.Service
	store *stores.Stores
	limit int64 // largest result, in bytes
}

func (c calledJobs) Submit(ctx context.Context, tenant int64, req forebay.SubmitRequest, caller *orchestrate.ActivityItem) error {
	name, err := c.store.Queues.TenantName(ctx, tenant)
	if err != nil {
		return err
	}
	return c.jobs.SubmitCalled(ctx, name, req, caller, caller.ID, caller.KeyID)
}

func (c calledJobs) Cancel(ctx context.Context, tenant int64, job string) error {
	name, err := c.store.Queues.TenantName(ctx, tenant)
	if err == nil {
		_, err = c.jobs.Cancel(ctx, name, job)
	}
	return err
}

func (c calledJobs) Outcome(ctx context.Context, tenant int64, id string) (json.RawMessage, *forebay.OrchestrationFailure, error) {
	name, err := c.store.Queues.TenantName(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	job, err := c.jobs.Get(ctx, name, id)
	switch {
	case forebay.CodeOf(err) == forebay.CodeNotFound:
		return nil, &forebay.OrchestrationFailure{Type: string(forebay.CodeGone), Message: "the job was purged"}, nil
	case err != nil:
		return nil, nil, err
	case job.Error != nil:
		return nil, &forebay.OrchestrationFailure{Type: job.Error.Code, Message: job.Error.Message}, nil
	case job.Status != forebay.StatusSucceeded: // cancelled, or redriven after a failure
		return nil, &forebay.OrchestrationFailure{Type: string(job.Status), Message: "the job is " + string(job.Status)}, nil
	case job.Result != nil:
		return job.Result, nil, nil
	}
	r, size, err := c.jobs.Result(ctx, name, id)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	if size > c.limit {
		return nil, &forebay.OrchestrationFailure{Type: string(forebay.CodePayloadTooLarge),
			Message: fmt.Sprintf("the result has %d bytes; an orchestration takes up to %d", size, c.limit)}, nil
	}
	result, err := io.ReadAll(r)
	return result, nil, err
}

// StartOrchestration starts an instance of an orchestrator and returns its id. The instance is
// then on disk. An empty id means a generated one. If an instance with the id is running, the
// error is CodeConflict. One that is over is purged.
func (s *Server) StartOrchestration(ctx context.Context, tenant, name, id string, input any) (string, error) {
	encoded, err := encodeInput(input)
	if err != nil {
		return "", err
	}
	return s.orchestrations.Start(ctx, tenant, orchestrate.StartRequest{Name: name, ID: id, Input: encoded})
}

// Orchestration returns the current state of an instance.
func (s *Server) Orchestration(ctx context.Context, tenant, id string) (forebay.Orchestration, error) {
	return s.orchestrations.Get(ctx, tenant, id)
}

// WaitOrchestration returns an instance when it is over. If ctx or the timeout ends first, it
// returns the current state.
func (s *Server) WaitOrchestration(ctx context.Context, tenant, id string, timeout time.Duration) (forebay.Orchestration, error) {
	return s.orchestrations.Wait(ctx, tenant, id, timeout)
}

// RaiseEvent sends an event to an instance. The event is kept until the instance waits for it.
func (s *Server) RaiseEvent(ctx context.Context, tenant, id, event string, data any) error {
	encoded, err := encodeInput(data)
	if err != nil {
		return err
	}
	return s.orchestrations.Raise(ctx, tenant, id, event, encoded)
}

// TerminateOrchestration ends an instance, its sub-orchestrations and the jobs it waits for.
func (s *Server) TerminateOrchestration(ctx context.Context, tenant, id, reason string) error {
	return s.orchestrations.Terminate(ctx, tenant, id, reason)
}

// ActivityAttempts returns the attempts of an instance's activities.
func (s *Server) ActivityAttempts(ctx context.Context, tenant, id string) ([]forebay.ActivityAttempt, error) {
	return s.orchestrations.Attempts(ctx, tenant, id)
}

func encodeInput(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return nil, forebay.Invalid("input", "is no JSON: %s", err)
	}
	return encoded, nil
}
