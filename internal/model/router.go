package model

import (
	"cmp"
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
	// assumedOutputTokens is the output limit in a cost estimate if no limit is set.
	assumedOutputTokens = quota.AssumedOutputTokens
)

// Router sends a call to the deployment that it was admitted to. It calls once, because only the
// job's retry lane retries. A call without admission goes to the first deployment of the model
// that is not pausing after a throttled call of this process. If all are pausing, the call fails
// at once without being sent.
type Router struct {
	models map[string]*routed
	lanes  []*lane // by deployment name
}

// routed is a logical model.
type routed struct {
	Model
	lanes []*lane
}

// lane is one deployment with the state of this process about it.
type lane struct {
	*Deployment
	models   []string
	inFlight atomic.Int64
	pace     pace

	mu          sync.Mutex
	pausedUntil time.Time // for calls without admission
}

// NewRouter returns a router over logical models. A deployment may serve several models. Its name
// identifies it.
func NewRouter(models map[string]Model) (*Router, error) {
	r := &Router{models: make(map[string]*routed, len(models))}
	byName := map[string]*lane{}
	for model, m := range models {
		m.Route = cmp.Or(m.Route, RouteOrder)
		switch {
		case len(m.Deployments) == 0:
			return nil, fmt.Errorf("model %q: no deployments", model)
		case !slices.Contains(Routes, m.Route):
			return nil, fmt.Errorf("model %q: %.40q is no route", model, string(m.Route))
		case m.Route == RouteWeighted && (len(m.Weights) != len(m.Deployments) || slices.Min(m.Weights) < 1):
			return nil, fmt.Errorf("model %q: each deployment needs a weight of at least 1", model)
		}
		r.models[model] = &routed{Model: m}
		for _, d := range m.Deployments {
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
			r.models[model].lanes = append(r.models[model].lanes, l)
		}
	}
	slices.SortFunc(r.lanes, func(a, b *lane) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range r.lanes {
		slices.Sort(l.models)
	}
	return r, nil
}

// Chat makes one chat call. The deployment is nil if nothing was called.
func (r *Router) Chat(ctx context.Context, model string, req ChatRequest) (ChatResponse, *Deployment, error) {
	count := sync.OnceValue(func() int64 { return req.promptTokens(ctx) })
	l, err := r.admit(ctx, model, func(d *lane, left left) string {
		if req.AsOpenAI && !Takes(d.Provider, pathChat) {
			return CodeNotSupported
		}
		output := req.MaxOutputTokens
		if output <= 0 {
			output = d.outputLimit()
		}
		return left.refuses(d.Price, req.maxPromptTokens(), int64(output)*int64(max(req.Answers, 1)), count)
	}, left{req.CostLeft, req.TokensLeft})
	if err != nil {
		return ChatResponse{}, nil, err
	}
	switch {
	case req.MaxOutputTokens > 0:
	case req.CostLeft != nil || req.TokensLeft != nil:
		// The assumed limit must be enforced, or the job's own limit would not hold.
		req.MaxOutputTokens = l.outputLimit()
	default:
		// The provider decides. A limit of ours could cut off the whole answer after the model's
		// reasoning.
		req.MaxOutputTokens = l.MaxOutputTokens
	}
	var resp ChatResponse
	req.OnLimits = reportLimits(ctx, req.OnLimits)
	ReportSent(ctx)
	err = l.call(func() (int64, error) {
		resp, err = l.Provider.Chat(ctx, req)
		return resp.Usage.OutputTokens, err
	})
	ReportOutcome(ctx, resp.Limits, resp.Usage, resp.CachedTokens, err)
	return resp, l.Deployment, err
}

// Embed makes one embedding call. The deployment is nil if nothing was called.
func (r *Router) Embed(ctx context.Context, model string, req EmbedRequest) (EmbedResponse, *Deployment, error) {
	count := sync.OnceValue(func() int64 { return req.promptTokens(ctx) })
	l, err := r.admit(ctx, model, func(d *lane, left left) string {
		return left.refuses(d.Price, req.maxPromptTokens(), 0, count)
	}, left{req.CostLeft, req.TokensLeft})
	if err != nil {
		return EmbedResponse{}, nil, err
	}
	var resp EmbedResponse
	req.OnLimits = reportLimits(ctx, req.OnLimits)
	ReportSent(ctx)
	err = l.call(func() (int64, error) {
		resp, err = l.Provider.Embed(ctx, req)
		return 0, err
	})
	ReportOutcome(ctx, resp.Limits, resp.Usage, 0, err) // embeddings are not cached
	return resp, l.Deployment, err
}

// left is what remains of the job's own limits for a call. nil means no limit.
type left struct {
	cost   *forebay.Money
	tokens *int64
}

// unlimited is what is left without limits.
var unlimited = left{}

// refuses returns the code of the limit that a call may exceed, or "". Before it counts the tokens
// of the prompt, it tries their upper bound, which costs nothing.
func (l left) refuses(price forebay.Price, bound, output int64, count func() int64) (code string) {
	over := func(input int64) string {
		switch {
		case l.cost != nil && price.CostBound(forebay.TokenUsage{InputTokens: input, OutputTokens: output}) > *l.cost:
			return CodeCostLimit
		case l.tokens != nil && input+output > *l.tokens:
			return CodeTokenLimit
		}
		return ""
	}
	if over(bound) == "" {
		return ""
	}
	if code = over(0); code == "" {
		code = over(count())
	}
	return code
}

func (l left) refusal(code string) error {
	t := forebay.Permanent(code, "")
	t.Uncalled = true
	switch code {
	case CodeTokenLimit:
		t.Message = fmt.Sprintf("the call may use more than the %d tokens that the job has left", max(*l.tokens, 0))
	case CodeCostLimit:
		t.Message = fmt.Sprintf("the call may cost more than the %s USD that the job has left", *l.cost)
	case CodeNotSupported:
		t.Message = "the deployment's provider does not take such a request"
	}
	return t
}

// admit returns the deployment to call now: the one that the call was admitted to, or else the
// first that is not paused. The call must be within the job's own limits.
func (r *Router) admit(ctx context.Context, model string, refuses func(*lane, left) string, left left) (*lane, error) {
	m := r.models[model]
	if m == nil {
		t := forebay.Permanent(CodeUnknownModel, fmt.Sprintf("no model is named %.100q", model))
		t.Uncalled = true
		return nil, t
	}
	now := time.Now()
	var opens time.Time
	refused := ""
	call := quota.CallOf(ctx)
	for _, l := range m.lanes {
		if call != nil && l.Name != call.Deployment {
			continue
		}
		if code := refuses(l, left); code != "" {
			if ctx.Err() != nil { // the count is incomplete
				return nil, ended(ctx)
			}
			if refused == "" || refused == CodeNotSupported { // another limit says more
				refused = code
			}
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
	if opens.IsZero() && refused != "" {
		return nil, left.refusal(refused)
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

// call makes a call. do returns the number of output tokens.
func (l *lane) call(do func() (output int64, err error)) error {
	l.inFlight.Add(1)
	defer l.inFlight.Add(-1)
	began := time.Now()
	output, err := do()
	if err == nil {
		l.pace.add(time.Since(began), output)
		return nil
	}
	var t *forebay.TaskError
	if errors.As(err, &t) && t.Class == forebay.ClassThrottled && t.Code != CodeParameterLearned && t.Code != CodeRequestExceedsQuota {
		l.pause(t.RetryAfter)
	}
	if t != nil && slices.Contains(cutOff, t.Code) {
		t.Unmeasured = true
	}
	return err
}

// cutOff are the codes of calls that failed while they were running. The provider may have done
// work and may bill for it.
var cutOff = []string{CodeIdleTimeout, CodeConnectionLost, CodeStreamCut, CodeMalformedResponse, CodeResponseTooLarge, CodeGatewayTimeout}

// pause stops calls for d and up to a tenth more, so that processes do not all return at the same
// time.
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

// Served is a deployment with the logical models it serves.
type Served struct {
	*Deployment
	Models   []string
	InFlight int64 // running calls of this process
}

// Deployments returns every deployment, by name.
func (r *Router) Deployments() []Served {
	served := make([]Served, len(r.lanes))
	for i, l := range r.lanes {
		served[i] = Served{Deployment: l.Deployment, Models: slices.Clone(l.models), InFlight: l.inFlight.Load()}
	}
	return served
}
