package server

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/blob"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/retry"
)

// Values of Deployment.Provider.
const (
	ProviderOpenAI    = "openai"
	ProviderAzure     = "azure-openai"
	ProviderAnthropic = "anthropic"
	ProviderSim       = "sim"
)

// APIResponses is the value of Deployment.API for servers that speak the Responses API.
const APIResponses = "responses"

// Values of Queue.OnFailure.
const (
	OnFailureDeadLetter = "dead-letter"
	OnFailureQuarantine = "quarantine"
)

// Validate returns all problems of the options with their defaults applied, or nil. Each error is
// a *forebay.Error whose Field is the path of the option in the configuration file.
func (o Options) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) { errs = append(errs, forebay.Invalid(field, format, args...)) }
	if _, err := databaseOf(o.Database); err != nil {
		errs = append(errs, err)
	}
	if o.Blob != "" {
		if err := blob.CheckAddress(o.Blob); err != nil {
			errs = append(errs, err)
		}
	}
	o.validateRole(bad)
	o.Orchestrations.validate(bad)
	o.OpenAI.validate(bad)
	o.UI.validate(bad)
	o.ServiceBus.validate(o.TLS.CertFile != "", bad)
	if !hostPort(o.Listen) {
		bad("listen", "%.80q is not host:port", o.Listen)
	}
	if (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
		bad("tls", "needs both cert_file and key_file")
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Log.Level)); err != nil {
		bad("log.level", "%.40q is none of debug, info, warn, error", o.Log.Level)
	}
	if !slices.Contains([]string{"", "json", "text"}, o.Log.Format) {
		bad("log.format", "%.40q is none of json, text", o.Log.Format)
	}
	if o.Limits.MaxInputBytes < 1 || o.Limits.MaxInputBytes > 100<<20 {
		bad("limits.max_input_bytes", "goes from 1 to %d", 100<<20)
	}
	if o.Limits.MaxMessageBytes < 1 || o.Limits.MaxMessageBytes > 100<<20 {
		bad("limits.max_message_bytes", "goes from 1 to %d", 100<<20)
	}
	if o.Limits.MaxOutputBytes < 1 || o.Limits.MaxOutputBytes > 100<<20 {
		bad("limits.max_output_bytes", "goes from 1 to %d", 100<<20)
	}
	if o.Limits.MemoryBytes < o.Limits.MaxInputBytes {
		bad("limits.memory_bytes", "must be at least max_input_bytes")
	}
	if o.Limits.Connections < 0 || o.Limits.Connections > 1_000_000 {
		bad("limits.connections", "goes from 1 to 1000000, or is 0 for a third of the file descriptors there may be")
	}
	if o.Limits.IdempotencyHours < 1 {
		bad("limits.idempotency_hours", "must be at least 1")
	}
	if o.ShutdownTimeout < 0 || o.ShutdownTimeout > time.Hour {
		bad("shutdown_timeout", "must be above 0 and at most 1h")
	}
	if _, err := o.Webhooks.policy(); err != nil {
		errs = append(errs, err)
	}
	o.validateTelemetry(bad)
	o.Retention.validate(bad)
	o.Audit.validate(bad)
	o.validateModels(bad)
	for _, name := range slices.Sorted(maps.Keys(o.Queues)) {
		o.Queues[name].validate("queues."+name, name, bad)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Tasks)) {
		if queue := o.Tasks[name].Queue; queue != "" {
			if _, ok := o.Queues[queue]; !ok {
				bad("tasks."+name+".queue", "there is no queue %.80q", queue)
			}
		}
	}
	errs = append(errs, o.validateTenants()...)
	o.validateMessageQueues(bad)
	o.validateTopics(bad)
	if len(errs) == 0 {
		// Endpoints, credentials, prompts and the models of tasks are checked where they are used.
		_, known, err := o.models(nil, nil)
		if err != nil {
			errs = append(errs, err)
		} else {
			o.validateIntake(known, bad)
			o.AzureServiceBus.validate(o, known, bad)
			o.validateDocuments(known, bad)
			errs = append(errs, o.validateWorkflows()...)
		}
	}
	return errors.Join(errs...)
}

func (o Options) validateTenants() (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(o.Tenants)) {
		if !forebay.ValidName(name) {
			errs = append(errs, forebay.Invalid("tenants", "%.80q is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'", name))
		} else if w := o.Tenants[name].Weight; !(w == 0 || w >= minTenantWeight && w <= maxWeight) {
			errs = append(errs, forebay.Invalid("tenants."+name+".weight", "goes from %v to %d", minTenantWeight, maxWeight))
		} else if n := o.Tenants[name].Concurrency; n < 0 || n > forebay.MaxTenantConcurrency {
			errs = append(errs, forebay.Invalid("tenants."+name+".concurrency", "goes from 0, which is no limit, to %d", forebay.MaxTenantConcurrency))
		} else if err := o.Tenants[name].Budget.check("tenants." + name + ".budget."); err != nil {
			errs = append(errs, err)
		} else if err := o.Tenants[name].Limits.Check("tenants." + name + ".limits."); err != nil {
			errs = append(errs, err)
		}
	}
	if err := o.Limits.Tenant.Check("limits.tenant."); err != nil {
		errs = append(errs, err)
	}
	return errs
}

func (o Options) validateModels(bad func(field, format string, args ...any)) {
	seen := map[string]bool{}
	for i, d := range o.Deployments {
		at := fmt.Sprintf("deployments[%d]", i)
		switch {
		case !forebay.ValidName(d.Name):
			bad(at+".name", "is required: 1 to 64 letters, digits, '.', '_' or '-'")
		case seen[d.Name]:
			bad(at+".name", "%q is used twice", d.Name)
		}
		seen[d.Name] = true
		if !slices.Contains([]string{ProviderOpenAI, ProviderAzure, ProviderAnthropic, ProviderSim}, d.Provider) {
			bad(at+".provider", "%.40q is none of openai, azure-openai, anthropic, sim", d.Provider)
		}
		if d.Price.Input < 0 || d.Price.Output < 0 || d.TokensPerMinute < 0 || d.OutputTokensPerMinute < 0 || d.RequestsPerMinute < 0 || d.Concurrency < 0 || d.EmbeddingInputs < 0 || d.EmbeddingTokens < 0 || d.MaxOutputTokens < 0 || d.IdleTimeout < 0 {
			bad(at, "prices, quotas, limits and timeouts must not be negative")
		}
		if d.Price.CachedInput < 0 || d.Price.CachedInput > d.Price.Input {
			bad(at+".price.cached_input", "is at least 0, and at most the price of other input")
		}
		if d.Price.CacheWrite < 0 {
			bad(at+".price.cache_write", "is at least 0")
		}
		switch {
		case d.API == "":
		case d.API != APIResponses:
			bad(at+".api", "%.40q is not responses", d.API)
		case d.Provider != ProviderOpenAI && d.Provider != ProviderAzure:
			bad(at+".api", "only for openai and azure-openai")
		}
		if d.Provisioned && d.Provider != ProviderAzure {
			bad(at+".provisioned", "only for azure-openai")
		}
		if d.OutputTokensPerMinute > 0 && d.Provider != ProviderAnthropic {
			bad(at+".output_tokens_per_minute", "only for anthropic: the others count input and output together")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Models)) {
		if !forebay.ValidName(name) {
			bad("models", "%.80q is not a valid name", name)
		}
		o.Models[name].validate("models."+name, seen, bad)
	}
}

const (
	maxWeight       = 1000
	minTenantWeight = 0.001
)

func (m Model) validate(at string, known map[string]bool, bad func(field, format string, args ...any)) {
	route := or(model.Route(m.Route), model.RouteOrder)
	if !slices.Contains(model.Routes, route) {
		bad(at+".route", "%.40q is none of order, weighted, price, latency", m.Route)
	}
	if len(m.Deployments) == 0 {
		bad(at, "names no deployment")
	}
	seen := map[string]bool{}
	for i, d := range m.Deployments {
		at := fmt.Sprintf("%s.deployments[%d]", at, i)
		switch {
		case !known[d.Name]:
			bad(at, "there is no deployment %.80q", d.Name)
		case seen[d.Name]:
			bad(at, "%q is there twice", d.Name)
		}
		seen[d.Name] = true
		if d.Weight < 0 || d.Weight > maxWeight {
			bad(at+".weight", "goes from 1 to %d", maxWeight)
		} else if d.Weight > 0 && route != model.RouteWeighted {
			bad(at+".weight", "only with route: weighted")
		}
	}
}

func (q Queue) validate(at, name string, bad func(field, format string, args ...any)) {
	if !forebay.ValidName(name) {
		bad("queues", "%.80q is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'", name)
	}
	if q.Concurrency < 1 || q.Concurrency > 10_000 {
		bad(at+".concurrency", "goes from 1 to 10000")
	}
	// Service Bus allows at most five minutes, too. Work may take longer, because locks are
	// renewed.
	if q.LockDuration < time.Second || q.LockDuration > 5*time.Minute {
		bad(at+".lock_duration", "goes from 1s to 5m")
	}
	if q.MaxDeliveryCount < 1 || q.MaxDeliveryCount > 2000 {
		bad(at+".max_delivery_count", "goes from 1 to 2000")
	}
	if q.OnFailure != OnFailureDeadLetter && q.OnFailure != OnFailureQuarantine {
		bad(at+".on_failure", "%.40q is none of dead-letter, quarantine", q.OnFailure)
	}
	r := q.Retry
	if !slices.Contains([]string{"exponential", "linear", "fixed"}, r.Policy) {
		bad(at+".retry.policy", "%.40q is none of exponential, linear, fixed", r.Policy)
	}
	if r.First < 0 || r.Max < 0 || r.First > r.Max || r.Max > 24*time.Hour {
		bad(at+".retry", "needs 0 ≤ first ≤ max ≤ 24h")
	}
	if !(r.Coefficient >= 1 && r.Coefficient <= 100) {
		bad(at+".retry.coefficient", "goes from 1 to 100")
	}
	if r.Attempts < 1 || r.Attempts > forebay.MaxAttemptsLimit {
		bad(at+".retry.attempts", "goes from 1 to %d", forebay.MaxAttemptsLimit)
	}
	if r.Timeout < 0 {
		bad(at+".retry.timeout", "must not be negative")
	}
	if r.Concurrency < 1 || r.Concurrency > 10_000 {
		bad(at+".retry.concurrency", "goes from 1 to 10000")
	}
	if r.Rate != 0 && !(r.Rate >= 0.001 && r.Rate <= 1e6) {
		bad(at+".retry.rate", "goes from 0.001 to 1000000 starts a second, or is 0 for no limit")
	}
	if !(r.Budget > 0 && r.Budget < 1) {
		bad(at+".retry.budget", "is a share of all calls: above 0 and below 1")
	}
}

// databaseOf parses a database URL: a SQLite file or a PostgreSQL database. Errors do not quote a
// URL of PostgreSQL, which may contain a password.
func databaseOf(database string) (db.Options, error) {
	scheme, path, ok := strings.Cut(database, ":")
	switch {
	case ok && (scheme == "postgres" || scheme == "postgresql"):
		if _, err := url.Parse(database); err != nil || !strings.HasPrefix(path, "//") {
			return db.Options{}, forebay.Invalid("database", "is not a URL: postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the password as %%XX")
		}
		return db.Options{URL: database}, nil
	case !ok || scheme != "sqlite":
		return db.Options{}, forebay.Invalid("database", "must be sqlite:PATH or postgres://…")
	case path == "" || strings.ContainsRune(path, 0):
		return db.Options{}, forebay.Invalid("database", "names no file: sqlite:PATH")
	}
	return db.Options{Path: strings.TrimPrefix(path, "//")}, nil
}

// databaseName returns the name of a database for logs, without its folder, server, user and
// password.
func databaseName(database string) string {
	o, err := databaseOf(database)
	if err != nil || o.URL == "" {
		return filepath.Base(o.Path)
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return "postgres"
	}
	return "postgres " + strings.TrimPrefix(u.Path, "/")
}

// jobsQueues converts the queues for package jobs.
func (o Options) jobsQueues() []jobs.Queue {
	var list []jobs.Queue
	for name, q := range o.Queues {
		where := forebay.DeadLetters
		if q.OnFailure == OnFailureQuarantine {
			where = forebay.Quarantine
		}
		r := q.Retry
		list = append(list, jobs.Queue{
			Name: name, Concurrency: q.Concurrency, LockDuration: q.LockDuration, MaxDeliveryCount: q.MaxDeliveryCount,
			OnFailure: where, Tenants: q.Tenants, NoDeadLetters: name == ResponsesQueue || name == BatchesQueue, Spare: name == BatchesQueue,
			Retry: retry.Policy{
				Backoff: retry.Backoff(r.Policy), First: r.First, Coefficient: r.Coefficient, Max: r.Max, Attempts: r.Attempts,
				Timeout: r.Timeout, Concurrency: r.Concurrency, Rate: r.Rate, Budget: r.Budget,
			},
		})
	}
	return list
}

// hostPort says whether an address has a host, which may be empty, and a port that there is.
func hostPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}
