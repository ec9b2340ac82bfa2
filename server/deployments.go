package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/listing"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/stores"
)

// deployments shows operators what calls go to, and carries out their changes.
type deployments struct {
	store  *stores.Stores
	log    *slog.Logger
	called atomic.Pointer[called]
}

// called lists what calls go to. It is replaced and never changed.
type called struct {
	*models
	tasks map[string]forebay.Task
}

// SimFaults returns the faults of a simulated deployment.
func (d *deployments) SimFaults(name string) (json.RawMessage, error) {
	return d.called.Load().simFaults(name)
}

// SetSimFaults replaces the faults from the next call on.
func (d *deployments) SetSimFaults(name string, faults json.RawMessage) error {
	return d.called.Load().setSimFaults(name, faults)
}

// admission lists the deployments that a call of a model may use.
func (d *deployments) admission(name string, need forebay.CallEstimate) []admission.Option {
	return d.called.Load().admission(name, need)
}

// inFlight returns the running calls of this process by deployment.
func (d *deployments) inFlight() map[string]int64 {
	calls := map[string]int64{}
	for _, served := range d.called.Load().router.Deployments() {
		calls[served.Name] = served.InFlight
	}
	return calls
}

var _ api.Deployments = (*deployments)(nil)

// configured is a deployment with its configured quota.
type configured struct {
	forebay.Deployment
	limits quota.Limits
}

// configured lists the deployments and then the HTTP functions, each sorted by name.
func (d *called) configured() []configured {
	var list []configured
	for _, served := range d.router.Deployments() {
		o := d.options[served.Name]
		_, simulated := d.simulators[served.Name]
		list = append(list, configured{forebay.Deployment{
			Name: served.Name, Kind: forebay.DeploymentModel, Provider: served.Kind, Models: served.Models, Simulated: simulated,
			TokensPerMinute: o.TokensPerMinute, OutputTokensPerMinute: o.OutputTokensPerMinute, RequestsPerMinute: o.RequestsPerMinute, Concurrency: o.Concurrency, Price: o.Price,
		}, served.Limits()})
	}
	functions := len(list)
	for _, task := range d.tasks {
		if task.Endpoint != "" {
			list = append(list, configured{forebay.Deployment{
				Name: task.Endpoint, Kind: forebay.DeploymentHTTPFunction, Provider: "http", Models: []string{},
				RequestsPerMinute: task.RequestsPerMinute, Concurrency: task.Concurrency,
			}, jobs.EndpointLimits(task)})
		}
	}
	slices.SortFunc(list[functions:], func(a, b configured) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// List returns the deployments with what all processes know about them.
func (d *deployments) List(ctx context.Context) ([]forebay.Deployment, error) {
	holding, err := d.store.Admission.Holding(ctx)
	if err != nil {
		return nil, err
	}
	list := []forebay.Deployment{}
	for _, c := range d.called.Load().configured() {
		state := holding.Deployments[c.Name]
		if state == nil {
			state = &quota.State{}
		}
		deployment := withStatus(c.Deployment, state.Status(holding.Now, c.limits))
		if since := holding.Since[c.Name]; since > 0 {
			at := time.UnixMilli(since).UTC()
			deployment.LearnedSince = &at
		}
		if c.Concurrency > 0 {
			deployment.InFlight = holding.Concurrency.OfDeployment(c.Name)
		}
		list = append(list, deployment)
	}
	return list, nil
}

func withStatus(d forebay.Deployment, st quota.Status) forebay.Deployment {
	amount := func(a quota.Amount) forebay.QuotaAmount {
		return forebay.QuotaAmount{Tokens: a[quota.Tokens], OutputTokens: a[quota.OutputTokens], Requests: a[quota.Requests]}
	}
	at := func(millis int64) *time.Time {
		if millis == 0 {
			return nil
		}
		t := time.UnixMilli(millis).UTC()
		return &t
	}
	d.Quota, d.Limit, d.Used = amount(st.Quota), amount(st.Limit), amount(st.Used)
	d.PacePercent, d.InFlight, d.Paused, d.PausedUntil = st.PacePercent, st.InFlight, st.Operator, at(st.PausedUntil)
	d.Breaker, d.BreakerReason, d.BreakerUntil = forebay.BreakerState(st.Breaker.String()), st.Denied.String(), at(st.BreakerUntil)
	d.Calls, d.Throttled, d.Failed = st.Counts.Calls, st.Counts.Throttled, st.Counts.Failed
	d.PromptFactor, d.PromptSpread, d.UnnamedOutputTokens = st.Kappa, st.Sigma, st.UnnamedOutput
	return d
}

// Get returns one deployment, or CodeNotFound.
func (d *deployments) Get(ctx context.Context, name string) (forebay.Deployment, error) {
	list, err := d.List(ctx)
	if err != nil {
		return forebay.Deployment{}, err
	}
	i := slices.IndexFunc(list, func(d forebay.Deployment) bool { return d.Name == name })
	if i < 0 {
		return forebay.Deployment{}, forebay.ErrNotFound
	}
	return list[i], nil
}

// SetPaused pauses or resumes a deployment in all processes.
func (d *deployments) SetPaused(ctx context.Context, name string, paused bool, actor string) error {
	if !d.has(name) {
		return forebay.ErrNotFound
	}
	action := "resume-deployment"
	if paused {
		action = "pause-deployment"
	}
	return d.store.Admission.PauseDeployment(ctx, name, paused, audit.Act{Actor: actor, Action: action, Target: name})
}

// Forget discards what all processes have learned about a deployment.
func (d *deployments) Forget(ctx context.Context, name, actor string) error {
	if !d.has(name) {
		return forebay.ErrNotFound
	}
	return d.store.Admission.ForgetDeployment(ctx, name, audit.Act{Actor: actor, Action: "forget-deployment", Target: name})
}

// retryDenied makes calls go again to deployments that refused them. A start of the server may
// have given them another key.
func (d *deployments) retryDenied(ctx context.Context) {
	var names []string
	for _, served := range d.called.Load().router.Deployments() {
		names = append(names, served.Name)
	}
	if err := d.store.Admission.RetryDenied(ctx, names); err != nil && ctx.Err() == nil {
		d.log.Warn("cannot retry the deployments that refused calls; they are retried when their pause ends", slog.Any("error", err))
	}
}

// Changes returns the changes of a deployment, newest first.
func (d *deployments) Changes(ctx context.Context, name string, limit int, cursor string) (forebay.Page[forebay.DeploymentChange], error) {
	if !d.has(name) {
		return forebay.Page[forebay.DeploymentChange]{}, forebay.ErrNotFound
	}
	return listing.Numbered(limit, cursor, func(below int64, limit int) ([]forebay.DeploymentChange, error) {
		return d.store.Admission.DeploymentChanges(ctx, name, below, limit)
	}, func(c *forebay.DeploymentChange) int64 { return c.Number })
}

func (d *deployments) has(name string) bool {
	return slices.ContainsFunc(d.called.Load().configured(), func(c configured) bool { return c.Name == name })
}

// changed logs a change of a deployment. Only the process that made the change logs it.
func (s *Server) changed(c forebay.DeploymentChange) {
	level := slog.LevelInfo
	if c.Type == string(quota.BreakerOpened) {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("deployment", c.Deployment), slog.String("change", c.Type)}
	if c.Until != nil {
		attrs = append(attrs, slog.Time("until", *c.Until))
	}
	if c.Reason != "" {
		attrs = append(attrs, slog.String("reason", c.Reason))
	}
	if c.TokensPerMinute > 0 {
		attrs = append(attrs, slog.Int64("tokens_per_minute", c.TokensPerMinute))
	}
	s.log.LogAttrs(context.Background(), level, "a deployment changed", attrs...)
	s.telemetry.DeploymentChanged(c)
}
