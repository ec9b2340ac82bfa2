package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/quota"
	"github.com/forebayhq/forebay/internal/tasks"
	"github.com/forebayhq/forebay/internal/telemetry"
)

// models holds the deployments of one server and what the API shows of them.
type models struct {
	router     *model.Router
	options    map[string]Deployment
	simulators map[string]*modelsim.Provider
}

// models creates the deployments and tasks of the options. It calls nothing. watch may be nil, and
// so may before, what was called until now.
func (o Options) models(watch *telemetry.Telemetry, before *models) (*models, map[string]forebay.Task, error) {
	m, err := newModels(o, watch, before)
	if err != nil {
		return nil, nil, err
	}
	known, err := m.tasks(o)
	return m, known, err
}

func newModels(o Options, watch *telemetry.Telemetry, before *models) (*models, error) {
	m := &models{options: map[string]Deployment{}, simulators: map[string]*modelsim.Provider{}}
	byName := map[string]*model.Deployment{}
	for i, d := range o.Deployments {
		provider, err := m.provider(d, o.Limits.MaxOutputBytes, before)
		if err != nil {
			return nil, fieldError(fmt.Sprintf("deployments[%d]", i), err)
		}
		m.options[d.Name] = d
		provider = watch.Provider(provider, telemetry.Deployment{Name: d.Name, Provider: d.Provider, Model: d.modelName()})
		byName[d.Name] = &model.Deployment{Name: d.Name, Kind: d.Provider, Provider: provider, Price: d.Price,
			Accounting: accounting(d), TokensPerMinute: d.TokensPerMinute, OutputTokensPerMinute: d.OutputTokensPerMinute,
			RequestsPerMinute: d.RequestsPerMinute, Concurrency: d.Concurrency, MaxOutputTokens: d.MaxOutputTokens}
	}
	byModel := map[string]model.Model{}
	for name, options := range o.Models {
		m := model.Model{Route: model.Route(options.Route)}
		for _, d := range options.Deployments {
			m.Deployments, m.Weights = append(m.Deployments, byName[d.Name]), append(m.Weights, or(d.Weight, 1))
		}
		byModel[name] = m
	}
	var err error
	if m.router, err = model.NewRouter(byModel); err != nil {
		return nil, fieldError("models", err)
	}
	return m, nil
}

// accounting returns how the provider of a deployment counts usage.
func accounting(d Deployment) quota.Accounting {
	switch {
	case d.Provider == ProviderAzure && d.Provisioned:
		return quota.AccountAzurePTU
	case d.Provider == ProviderAzure:
		return quota.AccountAzureOpenAI
	case d.Provider == ProviderAnthropic:
		return quota.AccountAnthropic
	case d.Provider == ProviderOpenAI:
		return quota.AccountOpenAI
	}
	return quota.AccountNone
}

// admission lists the deployments that a call of a model may use.
func (m *models) admission(name string, need forebay.CallEstimate) []admission.Option {
	deployments := m.router.Options(name, need)
	options := make([]admission.Option, 0, len(deployments))
	for _, d := range deployments {
		if need.AsOpenAI && !model.Takes(d.Provider, "chat/completions") || need.AsAnthropic && !model.Takes(d.Provider, "messages") {
			continue
		}
		if need.AsResponses && m.options[d.Name].API != APIResponses {
			continue
		}
		options = append(options, admission.Option{Deployment: d.Name, Limits: d.Limits(), Price: d.Price, Concurrency: int64(d.Concurrency),
			Request: quota.Request{PromptTokens: need.PromptTokens, MaxOutputTokens: need.MaxOutputTokens}})
	}
	return options
}

// forwards reports whether a deployment of a model takes requests of OpenAI's API as they are.
func (m *models) forwards(name string) bool {
	return len(m.admission(name, forebay.CallEstimate{AsOpenAI: true})) > 0
}

// mixed reports whether some deployments of a model speak Responses and others do not.
func (m *models) mixed(name string) bool {
	speak := len(m.admission(name, forebay.CallEstimate{AsOpenAI: true, AsResponses: true}))
	return speak > 0 && speak < len(m.admission(name, forebay.CallEstimate{AsOpenAI: true}))
}

// identities identifies what the names of deployments and HTTP functions refer to.
func (o Options) identities() admission.Identities {
	ids := admission.Identities{}
	for _, d := range o.Deployments {
		ids[d.Name] = identity(d.Provider, bare(d.Endpoint), d.modelName(), d.APIVersion)
	}
	for name, task := range o.Tasks {
		if task.HTTP != nil {
			ids["http:"+name] = identity("http", bare(task.HTTP.URL))
		}
	}
	return ids
}

// identity returns a digest of what is called.
func identity(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// bare returns an address without its user and query, which may be secret.
func bare(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Scheme+"://"+u.Host) + strings.TrimRight(u.Path, "/")
}

// modelName returns the name of the model at the provider.
func (d Deployment) modelName() string {
	switch d.Provider {
	case ProviderAzure:
		return d.Deployment
	case ProviderSim:
		return or(d.Model, modelsim.DefaultModel)
	}
	return d.Model
}

func fieldError(field string, err error) error {
	return forebay.Invalid(field, "%s", err.Error())
}

func (m *models) provider(d Deployment, maxOutput int64, before *models) (model.Provider, error) {
	http := model.HTTPConfig{IdleTimeout: d.IdleTimeout, MaxOutputBytes: maxOutput}
	switch d.Provider {
	case ProviderOpenAI:
		return model.NewOpenAI(model.OpenAIConfig{Endpoint: d.Endpoint, Model: d.Model, APIKey: d.APIKey, Responses: d.API == APIResponses, HTTPConfig: http})
	case ProviderAzure:
		return model.NewAzure(model.AzureConfig{Endpoint: d.Endpoint, Deployment: d.Deployment, APIVersion: d.APIVersion,
			APIKey: d.APIKey, EntraID: d.EntraID, Responses: d.API == APIResponses, HTTPConfig: http})
	case ProviderAnthropic:
		return model.NewAnthropic(model.AnthropicConfig{Endpoint: d.Endpoint, Model: d.Model, APIKey: d.APIKey, HTTPConfig: http})
	case ProviderSim:
		return m.simulator(d, before)
	}
	return nil, forebay.Invalid("provider", "%.40q is not known", d.Provider)
}

// simulator returns a simulated deployment. One whose settings are as before stays, with faults
// that an operator has set since: these hold until the server stops.
func (m *models) simulator(d Deployment, before *models) (model.Provider, error) {
	if before != nil {
		old := before.options[d.Name]
		if provider := before.simulators[d.Name]; provider != nil && old.Model == d.Model && old.IdleTimeout == d.IdleTimeout && reflect.DeepEqual(old.Sim, d.Sim) {
			m.simulators[d.Name] = provider
			return provider, nil
		}
	}
	s := d.Sim
	provider, err := modelsim.NewProvider(modelsim.ProviderOptions{Model: d.Model, IdleTimeout: d.IdleTimeout, Faults: modelsim.ProviderFaults{
		Seed: s.Seed, Latency: s.Latency, Jitter: s.Jitter, ThrottleRate: s.ThrottleRate, RetryAfter: s.RetryAfter,
		ErrorRate: s.ErrorRate, HangRate: s.HangRate, MalformedRate: s.MalformedRate,
		RequestsPerMinute: s.RequestsPerMinute, RefusePhrases: s.RefusePhrases,
	}})
	if err == nil {
		m.simulators[d.Name] = provider
	}
	return provider, err
}

// tasks returns the built-in and configured tasks by name.
func (m *models) tasks(o Options) (map[string]forebay.Task, error) {
	config := tasks.Config{Models: m.router, Forwards: m.forwards, MaxOutputBytes: o.Limits.MaxOutputBytes, Tasks: map[string]tasks.Option{}}
	for name := range o.Models {
		config.ModelNames = append(config.ModelNames, name)
	}
	for name, t := range o.Tasks {
		option := tasks.Option{
			Extends: t.Extends, Model: t.Model, Models: t.Models, System: t.System, Prompt: t.Prompt, MaxOutputTokens: t.MaxOutputTokens,
			Temperature: t.Temperature, Labels: t.Labels, Queue: t.Queue, MaxAttempts: t.MaxAttempts, Timeout: t.Timeout,
		}
		if t.HTTP != nil {
			option.HTTP = &tasks.HTTPFunction{URL: t.HTTP.URL, Headers: t.HTTP.Headers, RequestsPerMinute: t.HTTP.RequestsPerMinute, Concurrency: t.HTTP.Concurrency}
		}
		config.Tasks[name] = option
	}
	list, err := tasks.New(config)
	if err != nil {
		return nil, err
	}
	byName := map[string]forebay.Task{}
	for _, task := range list {
		byName[task.Name] = task
	}
	for _, task := range o.Functions {
		if !forebay.ValidName(task.Name) || task.Run == nil {
			return nil, forebay.Invalid("functions", "%.80q needs a valid name and a function", task.Name)
		}
		byName[task.Name] = task
	}
	return byName, nil
}

func (m *models) simFaults(name string) (json.RawMessage, error) {
	s, ok := m.simulators[name]
	if !ok {
		return nil, forebay.ErrNotFound
	}
	return json.Marshal(s.Faults())
}

func (m *models) setSimFaults(name string, faults json.RawMessage) error {
	s, ok := m.simulators[name]
	if !ok {
		return forebay.ErrNotFound
	}
	var f modelsim.ProviderFaults
	if err := json.Unmarshal(faults, &f); err != nil {
		return err
	}
	return s.SetFaults(f)
}
