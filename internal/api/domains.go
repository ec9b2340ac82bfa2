package api

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/report"
	"github.com/forebayhq/forebay/internal/retention"
	"github.com/forebayhq/forebay/internal/tenant"
)

// Jobs is the part of [jobs.Service] that the API needs, split by capability. Errors that a
// caller may see are *forebay.Error values. Any other error is hidden.
type Jobs interface {
	Submitter
	Reader
	Controller
	Queues
	DeadLetters
	Overview
}

// Submitter stores jobs.
type Submitter interface {
	Submit(ctx context.Context, tenant string, req forebay.SubmitRequest) (job forebay.Job, existing bool, err error)
	SubmitMany(ctx context.Context, tenant string, reqs []forebay.SubmitRequest) []forebay.SubmitResult
	// AtOnce returns the best number of requests for the next SubmitMany.
	AtOnce() int
}

// Reader reads a tenant's jobs, and waits for their changes.
type Reader interface {
	Get(ctx context.Context, tenant, id string) (forebay.Job, error)
	List(ctx context.Context, tenant string, f forebay.JobFilter) (forebay.Page[forebay.Job], error)
	Result(ctx context.Context, tenant, id string) (r io.ReadCloser, size int64, err error)
	Input(ctx context.Context, tenant, id string) (r io.ReadCloser, size int64, err error)
	Attempts(ctx context.Context, tenant, id string) ([]forebay.Attempt, error)
	Wait(ctx context.Context, tenant, id string, timeout time.Duration) (forebay.Job, error)
	Events(ctx context.Context, tenant, id string, after int64) (events []forebay.Event, done bool, err error)
	Watch(ctx context.Context, tenant, id string) (changes <-chan struct{}, stop func(), err error)
}

// Controller changes the course of a job.
type Controller interface {
	Cancel(ctx context.Context, tenant, id string) (forebay.Job, error)
	Redrive(ctx context.Context, tenant, id, actor string) (forebay.Job, error)
}

// Queues shows and pauses queues.
type Queues interface {
	Queues(ctx context.Context, tenant string) ([]forebay.QueueInfo, error)
	Queue(ctx context.Context, tenant, name string) (forebay.QueueInfo, error)
	AllQueues(ctx context.Context) ([]forebay.QueueInfo, error)
	AnyQueue(ctx context.Context, name string) (forebay.QueueInfo, error)
	PauseQueue(ctx context.Context, name, actor string) error
	ResumeQueue(ctx context.Context, name, actor string) error
}

// DeadLetters works on the dead-letter and quarantine subqueues.
type DeadLetters interface {
	DeadLetters(ctx context.Context, tenant, queue string, where forebay.SetAside, f forebay.SetAsideFilter, limit int, cursor string) (forebay.Page[forebay.SetAsideJob], error)
	DeadLettersAcross(ctx context.Context, tenant string, where forebay.SetAside, a forebay.SetAsideAcross, limit int, cursor string) (forebay.Page[forebay.SetAsideJob], error)
	DeadLetterGroups(ctx context.Context, tenant string, where forebay.SetAside, a forebay.SetAsideAcross) (forebay.SetAsideGroups, error)
	PeekDeadLetter(ctx context.Context, tenant, queue string, where forebay.SetAside, jobID string) (forebay.SetAsideJob, error)
	RedriveDeadLetters(ctx context.Context, tenant, queue string, where forebay.SetAside, req forebay.RedriveRequest, actor string) (forebay.RedriveReport, error)
	PurgeDeadLetters(ctx context.Context, tenant, queue string, where forebay.SetAside, f forebay.SetAsideFilter, actor string) (forebay.PurgeReport, error)
}

// Live shows what happens now.
type Live interface {
	List(ctx context.Context) ([]forebay.Process, error)
	Calls(ctx context.Context, tenant string, f forebay.CallFilter) (forebay.RunningCalls, error)
	Backlog(ctx context.Context, tenant string, all bool) (forebay.Backlog, error)
	JobSessions(ctx context.Context, tenant string, f forebay.JobSessionFilter) (forebay.Page[forebay.JobSession], error)
	Listen(ctx context.Context, tenant string, views bool, f forebay.FeedFilter) (*feed.Listener, error)
}

// Keys makes, lists, revokes and checks API keys.
type Keys interface {
	Create(ctx context.Context, tenant string, scopes []forebay.Scope, expires *time.Time, budget forebay.Budget, actor string, entities ...string) (forebay.APIKey, error)
	List(ctx context.Context) ([]forebay.APIKey, error)
	Revoke(ctx context.Context, id, actor string) (forebay.APIKey, error)
	SetBudget(ctx context.Context, id string, budget forebay.Budget, actor string) (forebay.APIKey, error)
	Authenticate(ctx context.Context, key string) (caller forebay.Caller, open bool, err error)
	// Hold returns a context that ends when the caller's key ends. Its cause is then a
	// CodeUnauthorized error.
	Hold(ctx context.Context, caller forebay.Caller) (held context.Context, release func())
}

// SignIns are the sessions of the dashboard.
type SignIns interface {
	List(ctx context.Context, owner string) (list []forebay.SignIn, more bool, err error)
	End(ctx context.Context, id, actor string) error
	EndAll(ctx context.Context, owner, actor string) (ended int, err error)
}

// Tenants shows and pauses tenants, and changes their settings.
type Tenants interface {
	List(ctx context.Context) ([]forebay.Tenant, error)
	Get(ctx context.Context, name string) (forebay.Tenant, error)
	Set(ctx context.Context, name string, settings forebay.TenantSettings, actor string) (forebay.Tenant, error)
	Pause(ctx context.Context, name string, paused bool, actor string) (forebay.Tenant, error)
	// Exists reports whether anything was ever done in the name of a tenant.
	Exists(ctx context.Context, name string) (bool, error)
}

// AuditLog shows what operators did and whether the record was changed.
type AuditLog interface {
	Page(ctx context.Context, f forebay.AuditFilter, limit int, cursor string) (forebay.Page[forebay.AuditEntry], error)
	VerifyFrom(ctx context.Context, from string, limit int) (forebay.AuditVerification, error)
	Record(ctx context.Context, act audit.Act) error
}

// Purger deletes jobs that are over.
type Purger interface {
	PurgeJobs(ctx context.Context, tenant string, req forebay.PurgeJobsRequest, actor string) (forebay.PurgeJobsReport, error)
}

// Reports tells how attempts ended, and what they used.
type Reports interface {
	RetryReport(ctx context.Context, tenant string, all bool, since, until time.Time) (forebay.RetryReport, error)
	Usage(ctx context.Context, tenant string, q forebay.UsageQuery, modelOf func(deployment string) string) (forebay.UsageReport, error)
}

// Overview shows what the server runs and how it is.
type Overview interface {
	Tasks() []forebay.Task
	Health(ctx context.Context) []jobs.Part
}

var (
	_ Jobs     = (*jobs.Service)(nil)
	_ Keys     = (*keys.Service)(nil)
	_ Tenants  = (*tenant.Service)(nil)
	_ AuditLog = (*audit.Store)(nil)
	_ Purger   = (*retention.Service)(nil)
	_ Reports  = (*report.Store)(nil)
)

// Deployments shows what calls go to, and pauses it. A name that is not configured is
// CodeNotFound.
type Deployments interface {
	List(ctx context.Context) ([]forebay.Deployment, error)
	Get(ctx context.Context, name string) (forebay.Deployment, error)
	SetPaused(ctx context.Context, name string, paused bool, actor string) error
	// Forget discards what was learned about the deployment.
	Forget(ctx context.Context, name, actor string) error
	// Changes returns the changes of the deployment, newest first.
	Changes(ctx context.Context, name string, limit int, cursor string) (forebay.Page[forebay.DeploymentChange], error)
	Simulations
}

// Simulations sets the faults of simulated deployments.
type Simulations interface {
	// SimFaults returns the faults of a simulated deployment. Any other name is CodeNotFound, also
	// in SetSimFaults. SetSimFaults takes one JSON object, which applies from the next call on.
	SimFaults(name string) (json.RawMessage, error)
	SetSimFaults(name string, faults json.RawMessage) error
}

// noDeployments stands for a server without deployments.
type noDeployments struct{}

func (noDeployments) List(context.Context) ([]forebay.Deployment, error) { return nil, nil }
func (noDeployments) Get(context.Context, string) (forebay.Deployment, error) {
	return forebay.Deployment{}, forebay.ErrNotFound
}
func (noDeployments) SetPaused(context.Context, string, bool, string) error {
	return forebay.ErrNotFound
}
func (noDeployments) Forget(context.Context, string, string) error { return forebay.ErrNotFound }
func (noDeployments) Changes(context.Context, string, int, string) (forebay.Page[forebay.DeploymentChange], error) {
	return forebay.Page[forebay.DeploymentChange]{}, forebay.ErrNotFound
}
func (noDeployments) SimFaults(string) (json.RawMessage, error) { return nil, forebay.ErrNotFound }
func (noDeployments) SetSimFaults(string, json.RawMessage) error {
	return forebay.ErrNotFound
}
