package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/jobs"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/openai"
)

// CallsQueue is the queue in which synchronous calls of OpenAI's API wait. Each process that
// answers HTTP has one of its own. From the second process on, a number follows the name.
const CallsQueue = "calls"

// Settings of the queue that Options does not set: the provider is what limits calls, and clients
// wait for a retry.
const (
	callsConcurrency      = 1024
	callsRetryConcurrency = 256
	callsFirstRetry       = 500 * time.Millisecond
	callsLongestRetry     = 10 * time.Second
)

// ResponsesQueue is the queue of background responses of OpenAI's API.
const ResponsesQueue = "responses"

// responsesConcurrency is how many background responses a process makes at once by default. The
// provider is what limits them.
const responsesConcurrency = 256

// callsDefaults are the settings of the queue where the configuration says nothing.
func callsDefaults(q Queue) Queue {
	q.Concurrency = or(q.Concurrency, callsConcurrency)
	q.Retry.First, q.Retry.Max = or(q.Retry.First, callsFirstRetry), or(q.Retry.Max, callsLongestRetry)
	q.Retry.Concurrency = or(q.Retry.Concurrency, callsRetryConcurrency)
	return q.withDefaults()
}

// callsQueue returns the name of this process's queue of calls; "": it answers no HTTP.
func (s *Server) callsQueue(ctx context.Context) (string, error) {
	if !s.options.servesHTTP() {
		return "", nil
	}
	place, err := s.store.DB.Place(ctx)
	if err != nil || place == 0 {
		return CallsQueue, err
	}
	return fmt.Sprintf("%s-%d", CallsQueue, place), nil
}

// ownQueue makes of the queue of calls this process's own.
func (o Options) ownQueue(list []jobs.Queue, name string) []jobs.Queue {
	list = slices.DeleteFunc(list, func(q jobs.Queue) bool { return q.Name == CallsQueue && name == "" })
	for i := range list {
		if list[i].Name == CallsQueue {
			list[i].Name, list[i].Own, list[i].OwnOf = name, true, CallsQueue
		}
	}
	return list
}

// addCalls adds the tasks of OpenAI's endpoints and of lines of batches, for the models of the
// options.
func (s *Server) addCalls(o Options, m *models, known map[string]forebay.Task) {
	names := slices.Sorted(maps.Keys(o.Models))
	for _, task := range slices.Concat(s.calls.Tasks(m.router, names), s.calls.MessagesTasks(m.router, names)) {
		task.Queue = CallsQueue
		known[task.Name] = task
	}
	for _, task := range slices.Concat(s.responses.Tasks(m.router, names), openai.BatchTasks(m.router, s.responses, names, m.mixed)) {
		known[task.Name] = task
	}
}

// surfaces returns the interfaces of other products.
func (s *Server) surfaces() []api.Surface {
	first := s.openAI()
	return []api.Surface{first, openai.NewMessages(first)}
}

// openResponses makes the service of responses usable.
func (s *Server) openResponses() {
	s.responses.Store, s.responses.Payloads, s.responses.Limits = s.store.Responses, s.payloads, s.limits
	s.responses.Files = s.files
	s.responses.Use(s.jobs)
}

// serves reports whether there is a model of that name, and whether a deployment of it can answer
// a call that needs this.
func (d *deployments) serves(name string, need forebay.CallEstimate) (known, can bool) {
	now := d.called.Load()
	return now.router.Serves(name), len(now.admission(name, need)) > 0
}

// forwards is serves for a call that only a provider can answer that speaks OpenAI's API.
func (d *deployments) forwards(name string) (known, forwards bool) {
	return d.serves(name, forebay.CallEstimate{AsOpenAI: true})
}

// countTokens has a deployment of a model count the tokens of a request of Anthropic's API. Those
// that an operator has paused, or whose breaker is open, are passed over. Quotas do not matter.
func (d *deployments) countTokens(ctx context.Context, name string, body []byte, header http.Header) (model.ForwardResponse, error) {
	holding, err := d.store.Admission.Holding(ctx)
	if err != nil {
		return model.ForwardResponse{}, err
	}
	var may []*model.Deployment
	held := &forebay.TaskError{Class: forebay.ClassThrottled, Code: model.CodeDeploymentPaused, Uncalled: true,
		Waiting: forebay.WaitPaused, RetryAfter: countRetryAfter}
	for _, option := range d.called.Load().router.Options(name, forebay.CallEstimate{}) {
		if !model.Takes(option.Provider, model.PathCountTokens) {
			continue
		}
		if state := holding.Deployments[option.Name]; state != nil {
			status := state.Status(holding.Now, option.Limits())
			if status.Operator {
				continue
			}
			if open := time.Duration(status.BreakerUntil-holding.Now) * time.Millisecond; open > 0 {
				held.Waiting, held.RetryAfter = forebay.WaitBreaker, min(open, countRetryAfter)
				continue
			}
		}
		may = append(may, option)
	}
	if len(may) == 0 {
		return model.ForwardResponse{}, held
	}
	return model.CountTokens(ctx, may, body, header)
}

// countRetryAfter is the longest time after which a count that no deployment may take is to be
// repeated. An operator may change that at any time.
const countRetryAfter = 10 * time.Second

// openAI returns the interface of OpenAI's API.
func (s *Server) openAI() *openai.API {
	began, keep := time.Now(), int64(0)
	if s.options.OpenAI.KeepBodies {
		keep = s.options.Limits.MaxOutputBytes
	}
	return openai.New(openai.Options{
		Jobs: s.jobs, Calls: s.calls, Responses: s.responses, Queue: s.callsName, MaxBody: s.options.Limits.MaxInputBytes, MemoryBytes: s.options.Limits.MemoryBytes,
		KeepBodies: keep, Files: s.files, MaxFileBytes: s.options.OpenAI.MaxFileBytes,
		Batches: s.batches, Serves: s.deployments.serves, Spent: s.store.Admission.Spent,
		ServesMessages: func(name string) (known, forwards bool) {
			return s.deployments.serves(name, forebay.CallEstimate{AsAnthropic: true})
		},
		CountTokens: s.deployments.countTokens,
		Models: func() []openai.Model {
			owners := map[string][]string{}
			for _, served := range s.deployments.called.Load().router.Deployments() {
				for _, name := range served.Models {
					if !slices.Contains(owners[name], served.Kind) {
						owners[name] = append(owners[name], served.Kind)
					}
				}
			}
			var list []openai.Model
			for _, name := range slices.Sorted(maps.Keys(owners)) {
				list = append(list, openai.Model{Name: name, OwnedBy: strings.Join(owners[name], ","), Created: began})
			}
			return list
		},
	})
}
