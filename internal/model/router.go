package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

const (
	defaultPause = time.Second
	maxPause     = time.Minute
	// assumedOutputTokens stands in a cost estimate for a limit that nobody set.
	assumedOutputTokens = 4096
)

// Router sends a call to the first deployment of a model that may be called now. It calls once:
// what to do about a failure is for the job's retry lane to say. A throttled deployment is paused
// for this process; while all of a model's are, calls fail at once without being sent.
type Router struct {
	models map[string][]*lane
	lanes  []*lane // by deployment name
}

// lane is one deployment and its state in this process.
type lane struct {
	*Deployment
	models    []string
	inFlight  atomic.Int64
	calls     atomic.Int64
	throttles atomic.Int64

	mu          sync.Mutex
	pausedUntil time.Time
}

// NewRouter returns a router over logical models and their deployments, in order of preference. A
// deployment may serve several models; its name is its identity.
func NewRouter(models map[string][]*Deployment) (*Router, error) {
	r := &Router{models: make(map[string][]*lane, len(models))}
	byName := map[string]*lane{}
	for model, deployments := range models {
		if len(deployments) == 0 {
			return nil, fmt.Errorf("model %q: no deployments", model)
		}
		for _, d := range deployments {
			if d == nil || d.Name == "" || d.Provider == nil {
				return nil, fmt.Errorf("model %q: a deployment without name or provider", model)
			}
			l := byName[d.Name]
			if l == nil {
				l = &lane{Deployment: d}
				byName[d.Name] = l
				r.lanes = append(r.lanes, l)
			}
			if l.Deployment != d {
				return nil, fmt.Errorf("deployment %q: two with this name", d.Name)
			}
			if slices.Contains(l.models, model) {
				return nil, fmt.Errorf("model %q: deployment %q twice", model, d.Name)
			}
			l.models = append(l.models, model)
			r.models[model] = append(r.models[model], l)
		}
	}
	slices.SortFunc(r.lanes, func(a, b *lane) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range r.lanes {
		slices.Sort(l.models)
	}
	return r, nil
}

// Chat makes one chat call. The deployment is nil when nothing was called.
func (r *Router) Chat(ctx context.Context, model string, req ChatRequest) (ChatResponse, *Deployment, error) {
	count := sync.OnceValue(req.promptTokens)
	l, err := r.admit(ctx, model, func(d *Deployment, left forebay.Money) bool {
		output := req.MaxOutputTokens
		if output <= 0 {
			output = d.MaxOutputTokens
		}
		if output <= 0 {
			output = assumedOutputTokens
		}
		return affordable(d.Price, left, req.maxPromptTokens(), int64(output), count)
	}, req.CostLeft)
	if err != nil {
		return ChatResponse{}, nil, err
	}
	if req.MaxOutputTokens <= 0 {
		req.MaxOutputTokens = l.MaxOutputTokens
	}
	var resp ChatResponse
	req.OnLimits = reportLimits(ctx, req.OnLimits)
	err = l.call(func() error {
		resp, err = l.Provider.Chat(ctx, req)
		return err
	})
	ReportOutcome(ctx, resp.Limits, resp.Usage, err)
	return resp, l.Deployment, err
}

// Embed makes one embedding call. The deployment is nil when nothing was called.
func (r *Router) Embed(ctx context.Context, model string, req EmbedRequest) (EmbedResponse, *Deployment, error) {
	count := sync.OnceValue(req.promptTokens)
	l, err := r.admit(ctx, model, func(d *Deployment, left forebay.Money) bool {
		return affordable(d.Price, left, req.maxPromptTokens(), 0, count)
	}, req.CostLeft)
	if err != nil {
		return EmbedResponse{}, nil, err
	}
	var resp EmbedResponse
	req.OnLimits = reportLimits(ctx, req.OnLimits)
	err = l.call(func() error {
		resp, err = l.Provider.Embed(ctx, req)
		return err
	})
	ReportOutcome(ctx, resp.Limits, resp.Usage, err)
	return resp, l.Deployment, err
}

// affordable tries the free upper bound of the prompt's tokens before it counts them.
func affordable(price forebay.Price, left forebay.Money, bound, output int64, count func() int64) bool {
	if left < 0 {
		return false
	}
	cost := func(input int64) forebay.Money {
		return price.Cost(forebay.TokenUsage{InputTokens: input, OutputTokens: output})
	}
	return cost(bound) <= left || cost(0) <= left && cost(count()) <= left
}

// admit answers which deployment may be called now: the one that the call was admitted to, if it was;
// else the first that is not paused. Either must be within the job's cost limit.
func (r *Router) admit(ctx context.Context, model string, affords func(*Deployment, forebay.Money) bool, left *forebay.Money) (*lane, error) {
	lanes, ok := r.models[model]
	if !ok {
		t := forebay.Permanent(CodeUnknownModel, fmt.Sprintf("no model is named %.100q", model))
		t.Uncalled = true
		return nil, t
	}
	now := time.Now()
	var opens time.Time
	call := quota.CallOf(ctx)
	for _, l := range lanes {
		if call != nil && l.Name != call.Deployment {
			continue
		}
		if left != nil && !affords(l.Deployment, *left) {
			continue
		}
		until := l.paused()
		if call != nil || !now.Before(until) {
			return l, nil
		}
		if opens.IsZero() || until.Before(opens) {
			opens = until
		}
	}
	if opens.IsZero() && left != nil {
		t := forebay.Permanent(CodeCostLimit, fmt.Sprintf("the call may cost more than the %s USD that the job has left", *left))
		t.Uncalled = true
		return nil, t
	}
	return nil, &forebay.TaskError{Class: forebay.ClassThrottled, Code: CodeDeploymentPaused, Uncalled: true,
		Waiting: forebay.WaitQuota, RetryAfter: opens.Sub(now),
		Message: "every deployment of the model is paused until its quota allows more"}
}

func (l *lane) paused() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pausedUntil
}

func (l *lane) call(do func() error) error {
	l.calls.Add(1)
	l.inFlight.Add(1)
	defer l.inFlight.Add(-1)
	err := do()
	var t *forebay.TaskError
	if errors.As(err, &t) && t.Class == forebay.ClassThrottled && t.Code != CodeParameterLearned {
		l.throttles.Add(1)
		if t.Code != CodeRequestExceedsQuota {
			l.pause(t.RetryAfter)
		}
	}
	if t != nil && slices.Contains(cutOff, t.Code) {
		t.Unmeasured = true
	}
	return err
}

// cutOff are the codes of calls that were under way when they failed: the provider may have worked, and
// bill for it.
var cutOff = []string{CodeIdleTimeout, CodeConnectionLost, CodeStreamCut, CodeMalformedResponse, CodeResponseTooLarge, CodeGatewayTimeout}

// pause keeps calls away for d and up to a tenth more, so that processes do not come back together.
func (l *lane) pause(d time.Duration) {
	if d <= 0 {
		d = defaultPause
	}
	d = min(d, maxPause)
	until := time.Now().Add(d + time.Duration(rand.Float64()*float64(d)/10))
	l.mu.Lock()
	defer l.mu.Unlock()
	if until.After(l.pausedUntil) {
		l.pausedUntil = until
	}
}

// DeploymentState is a deployment as this process sees it.
type DeploymentState struct {
	Name        string
	Kind        string
	Models      []string // the logical models it serves
	InFlight    int64
	PausedUntil time.Time // zero: not paused
	Calls       int64
	Throttles   int64
}

// Deployments returns the state of every deployment, by name.
func (r *Router) Deployments() []DeploymentState {
	now := time.Now()
	states := make([]DeploymentState, len(r.lanes))
	for i, l := range r.lanes {
		states[i] = DeploymentState{Name: l.Name, Kind: l.Kind, Models: slices.Clone(l.models),
			InFlight: l.inFlight.Load(), Calls: l.calls.Load(), Throttles: l.throttles.Load()}
		if until := l.paused(); now.Before(until) {
			states[i].PausedUntil = until
		}
	}
	return states
}
