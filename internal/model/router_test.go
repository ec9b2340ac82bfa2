package model

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// scripted is a provider whose next answer a test sets.
type scripted struct {
	err   error
	calls int
	last  ChatRequest
	enter chan struct{}
	leave chan struct{}
}

func (s *scripted) Chat(ctx context.Context, req ChatRequest) (ChatResponse, error) {
	s.calls++
	s.last = req
	if s.enter != nil {
		s.enter <- struct{}{}
		<-s.leave
	}
	return ChatResponse{Text: "ok", Usage: forebay.TokenUsage{InputTokens: 1}}, s.err
}

func (s *scripted) Embed(ctx context.Context, req EmbedRequest) (EmbedResponse, error) {
	s.calls++
	return EmbedResponse{Model: "e"}, s.err
}

func throttledFor(d time.Duration) error {
	return &forebay.TaskError{Class: forebay.ClassThrottled, Code: CodeRateLimited, RetryAfter: d}
}

func twoDeployments(t *testing.T) (r *Router, east, west *scripted) {
	t.Helper()
	east, west = &scripted{}, &scripted{}
	e := &Deployment{Name: "east", Kind: "azure-openai", Provider: east, Price: forebay.Price{Input: 1, Output: 10}, MaxOutputTokens: 100}
	w := &Deployment{Name: "west", Kind: "openai", Provider: west}
	r, err := NewRouter(map[string]Model{"chat": {Deployments: []*Deployment{e, w}}, "other": {Deployments: []*Deployment{w}}})
	if err != nil {
		t.Fatal(err)
	}
	return r, east, west
}

func TestRouterFollowsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, east, west := twoDeployments(t)
		chat := func() (string, error) {
			_, d, err := r.Chat(t.Context(), "chat", say("hi"))
			if d == nil {
				return "", err
			}
			return d.Name, err
		}
		want := func(name string) {
			t.Helper()
			if got, err := chat(); err != nil || got != name {
				t.Errorf("called %q, %v; want %q", got, err, name)
			}
		}
		want("east")

		// Throttled: reported with its deployment, not tried elsewhere; the next call goes west.
		east.err = throttledFor(20 * time.Second)
		if name, err := chat(); name != "east" || err != east.err || west.calls != 0 {
			t.Fatalf("called %q, %v; west %d times", name, err, west.calls)
		}
		want("west")

		west.err = throttledFor(0)
		if name, _ := chat(); name != "west" {
			t.Fatalf("called %q", name)
		}
		calls := east.calls + west.calls
		_, err := chat()
		e := wantTask(t, err, forebay.ClassThrottled, CodeDeploymentPaused)
		if !e.Uncalled || e.Waiting != forebay.WaitQuota || e.RetryAfter < defaultPause || e.RetryAfter > defaultPause*11/10 {
			t.Errorf("got %+v", e)
		}
		if _, _, err := r.Embed(t.Context(), "other", EmbedRequest{Inputs: []string{"x"}}); err == nil {
			t.Error("the pause of a shared deployment does not hold for its other model")
		}
		if east.calls+west.calls != calls {
			t.Error("a paused deployment was called")
		}
		served := r.Deployments()
		if len(served) != 2 || served[0].Name != "east" || served[0].Kind != "azure-openai" || strings.Join(served[1].Models, " ") != "chat other" {
			t.Errorf("they are %+v", served)
		}

		<-time.After(e.RetryAfter)
		west.err = nil
		want("west")
		<-time.After(22 * time.Second)
		east.err = nil
		want("east")
	})
}

func TestPausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, east, _ := twoDeployments(t)
		east.err = throttledFor(10 * time.Minute)
		_, _, _ = r.Chat(t.Context(), "chat", say("hi"))
		if until := time.Until(r.lanes[0].paused()); until < maxPause || until > maxPause*11/10 {
			t.Errorf("paused for %v", until)
		}
		// A shorter pause does not end a longer one.
		r.lanes[0].pause(time.Second)
		if until := time.Until(r.lanes[0].paused()); until < maxPause {
			t.Errorf("paused for %v", until)
		}
	})
}

func TestOtherFailuresDoNotPause(t *testing.T) {
	r, east, _ := twoDeployments(t)
	for _, err := range []error{
		&forebay.TaskError{Class: forebay.ClassTransient, Code: CodeUnavailable, RetryAfter: time.Minute},
		&forebay.TaskError{Class: forebay.ClassThrottled, Code: CodeRequestExceedsQuota, RetryAfter: 24 * time.Hour},
		forebay.Permanent(CodeBadRequest, "no"), context.Canceled,
	} {
		east.err = err
		resp, d, got := r.Chat(t.Context(), "chat", say("hi"))
		if d == nil || d.Name != "east" || got != err || resp.Usage.InputTokens != 1 {
			t.Errorf("%v: called %v, got %v with usage %+v", err, d, got, resp.Usage)
		}
	}
}

func TestUnknownModel(t *testing.T) {
	r, _, _ := twoDeployments(t)
	_, d, err := r.Chat(t.Context(), "nope", say("hi"))
	if e := wantTask(t, err, forebay.ClassPermanent, CodeUnknownModel); !e.Uncalled || d != nil {
		t.Errorf("got %+v, %v", e, d)
	}
}

func TestCostLimit(t *testing.T) {
	r, east, west := twoDeployments(t)
	left := func(dollars float64) *forebay.Money { m := forebay.USD(dollars); return &m }
	chat := func(model string, req ChatRequest, left *forebay.Money) (string, error) {
		req.CostLeft = left
		_, d, err := r.Chat(t.Context(), model, req)
		if d == nil {
			return "", err
		}
		return d.Name, err
	}
	// 100 tokens of output at 10 $ a million are 0.001 $; the prompt adds millionths.
	if name, err := chat("chat", say("hi"), left(0.0011)); name != "east" || err != nil || east.last.MaxOutputTokens != 100 {
		t.Errorf("called %q, %v", name, err)
	}
	// Too dear here, free there.
	if name, err := chat("chat", say("hi"), left(0.0005)); name != "west" || err != nil {
		t.Errorf("called %q, %v", name, err)
	}
	// The bound by bytes is above the limit, the count of tokens is not.
	words := strings.Repeat("information ", 1000)
	if name, err := chat("chat", say(words), left(0.001+0.0012)); name != "east" || err != nil {
		t.Errorf("called %q, %v", name, err)
	}
	// A paused deployment that is cheap enough is worth waiting for.
	west.err = throttledFor(time.Minute)
	_, _ = chat("other", say("hi"), nil)
	_, err := chat("chat", say("hi"), left(0.0005))
	wantTask(t, err, forebay.ClassThrottled, CodeDeploymentPaused)

	_, err = chat("chat", say("hi"), left(-1))
	if e := wantTask(t, err, forebay.ClassPermanent, CodeCostLimit); !e.Uncalled {
		t.Errorf("got %+v", e)
	}
	if resp, d, err := r.Embed(t.Context(), "chat", EmbedRequest{Inputs: []string{words}, CostLeft: left(0.0012)}); err != nil || d.Name != "east" || resp.Model != "e" {
		t.Errorf("embedding by %v: %v", d, err)
	}
	calls := east.calls + west.calls
	if _, _, err := r.Embed(t.Context(), "chat", EmbedRequest{Inputs: []string{words}, CostLeft: left(-1)}); err == nil || east.calls+west.calls != calls {
		t.Errorf("embedding: %v", err)
	}
}

func TestTokenLimit(t *testing.T) {
	r, east, west := twoDeployments(t)
	call := func(left int64, words int) error {
		t.Helper()
		_, _, err := r.Chat(t.Context(), "chat", ChatRequest{Messages: []Message{{Role: RoleUser, Content: strings.Repeat("information ", words)}}, MaxOutputTokens: 50, TokensLeft: &left})
		return err
	}
	// The bound by bytes is above the limit, the count of tokens is not.
	if err := call(1100, 1000); err != nil {
		t.Error(err)
	}
	calls := east.calls + west.calls
	for _, left := range []int64{1000, 49, 0, -1} {
		e := wantTask(t, call(left, 1000), forebay.ClassPermanent, CodeTokenLimit)
		if want := fmt.Sprintf("the call may use more than the %d tokens that the job has left", max(left, 0)); !e.Uncalled || e.Message != want {
			t.Errorf("got %+v", e)
		}
	}
	if left := int64(1); east.calls+west.calls == calls {
		_, _, err := r.Embed(t.Context(), "chat", EmbedRequest{Inputs: []string{"one and two"}, TokensLeft: &left})
		wantTask(t, err, forebay.ClassPermanent, CodeTokenLimit)
	} else {
		t.Error("a call over the limit was made")
	}
}

// A call of a job with a limit of its own asks for no more than was counted with; others leave it
// to the provider.
func TestAssumedOutputIsAsked(t *testing.T) {
	r, _, west := twoDeployments(t)
	tokens, dollars := int64(100_000), forebay.USD(1)
	for want, req := range map[int][]ChatRequest{0: {{}}, assumedOutputTokens: {{TokensLeft: &tokens}, {CostLeft: &dollars}}, 7: {{MaxOutputTokens: 7, TokensLeft: &tokens}}} {
		for _, req := range req {
			req.Messages = say("hi").Messages
			if _, _, err := r.Chat(t.Context(), "other", req); err != nil || west.last.MaxOutputTokens != want {
				t.Errorf("asked for %d, want %d: %v", west.last.MaxOutputTokens, want, err)
			}
		}
	}
}

func TestInFlight(t *testing.T) {
	r, east, _ := twoDeployments(t)
	east.enter, east.leave = make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() { _, _, _ = r.Chat(context.Background(), "chat", say("hi")); close(done) }()
	<-east.enter
	if n := r.Deployments()[0].InFlight; n != 1 {
		t.Errorf("%d in flight", n)
	}
	close(east.leave)
	<-done
	if n := r.Deployments()[0].InFlight; n != 0 {
		t.Errorf("%d in flight", n)
	}
}

func TestNewRouterChecks(t *testing.T) {
	a := &Deployment{Name: "a", Provider: &scripted{}}
	of := func(deployments ...*Deployment) Model { return Model{Deployments: deployments} }
	b := &Deployment{Name: "b", Provider: a.Provider}
	for name, models := range map[string]map[string]Model{
		"none":           {"m": {}},
		"nil":            {"m": of(nil)},
		"no provider":    {"m": of(&Deployment{Name: "x"})},
		"no name":        {"m": of(&Deployment{Provider: a.Provider})},
		"two a":          {"m": of(a), "n": of(&Deployment{Name: "a", Provider: a.Provider})},
		"a twice":        {"m": of(a, a)},
		"no such route":  {"m": {Deployments: []*Deployment{a}, Route: "shortest"}},
		"no weights":     {"m": {Deployments: []*Deployment{a, b}, Route: RouteWeighted, Weights: []int{1}}},
		"weight nothing": {"m": {Deployments: []*Deployment{a, b}, Route: RouteWeighted, Weights: []int{1, 0}}},
	} {
		if _, err := NewRouter(models); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := NewRouter(nil); err != nil {
		t.Error(err)
	}
}

// A call whose provider panics was sent, as far as anybody knows.
func TestPanickingCallCounts(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Router) error{
		"chat": func(ctx context.Context, r *Router) error {
			_, _, err := r.Chat(ctx, "chat", say("hi"))
			return err
		},
		"embed": func(ctx context.Context, r *Router) error {
			_, _, err := r.Embed(ctx, "chat", EmbedRequest{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewRouter(map[string]Model{"chat": {Deployments: []*Deployment{{Name: "east", Provider: panicking{}}}}})
			if err != nil {
				t.Fatal(err)
			}
			admitted := &quota.Call{Deployment: "east"}
			defer func() {
				if recover() == nil || admitted.Outcome == nil || admitted.Outcome.Kind == quota.NotSent {
					t.Errorf("the call ended as %+v", admitted.Outcome)
				}
			}()
			t.Error(call(quota.WithCall(t.Context(), admitted), r))
		})
	}
}

type panicking struct{}

func (panicking) Chat(context.Context, ChatRequest) (ChatResponse, error)    { panic("in mid-call") }
func (panicking) Embed(context.Context, EmbedRequest) (EmbedResponse, error) { panic("in mid-call") }

// That nobody waits for an answer any more says nothing about the deployment; that a task's own
// time limit is over does.
func TestWhoGivesUp(t *testing.T) {
	limit := &forebay.TaskError{Class: forebay.ClassTransient, Code: "timeout"}
	for name, c := range map[string]struct {
		cause error
		kind  quota.OutcomeKind
	}{
		"the job's deadline": {errors.New("the job's deadline passed"), quota.Permanent}, "cancelled": {context.Canceled, quota.Permanent},
		"the task's limit": {limit, quota.Transient},
	} {
		for _, cut := range []func(context.Context) (context.Context, context.CancelFunc){
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithDeadlineCause(ctx, time.Now().Add(-time.Second), c.cause)
			},
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				cancel(c.cause)
				return ctx, func() {}
			},
		} {
			admitted := &quota.Call{Deployment: "east"}
			ctx, cancel := cut(quota.WithCall(t.Context(), admitted))
			r, err := NewRouter(map[string]Model{"chat": {Deployments: []*Deployment{{Name: "east", Provider: hanging{}}}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.Chat(ctx, "chat", say("hi")); err == nil || admitted.Outcome == nil || admitted.Outcome.Kind != c.kind {
				t.Errorf("%s: %v, %+v", name, err, admitted.Outcome)
			}
			cancel()
		}
	}
}

// hanging answers when nobody waits any more.
type hanging struct{}

func (hanging) Chat(ctx context.Context, _ ChatRequest) (ChatResponse, error) {
	<-ctx.Done()
	return ChatResponse{}, ctx.Err()
}

func (hanging) Embed(ctx context.Context, _ EmbedRequest) (EmbedResponse, error) {
	<-ctx.Done()
	return EmbedResponse{}, ctx.Err()
}
