package model

import (
	"context"
	"errors"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// forwards is a provider that forwards as a test wants it.
type forwards struct {
	Provider
	do func(ForwardRequest) (ForwardResponse, error)
}

func (forwards) Takes(string) bool { return true }

func (f forwards) Forward(_ context.Context, req ForwardRequest) (ForwardResponse, error) {
	return f.do(req)
}

func forwardRouter(t *testing.T, do func(ForwardRequest) (ForwardResponse, error)) *Router {
	t.Helper()
	r, err := NewRouter(map[string]Model{"m": {Deployments: []*Deployment{
		{Name: "other", Provider: struct{ Provider }{}},
		{Name: "d", Provider: forwards{do: do}, Price: forebay.Price{Input: 1, Output: 10}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An error after the first byte is final for the caller. The deployment's admission learns what it
// was.
func TestRouterForwardAfterTheFirstByte(t *testing.T) {
	for _, write := range []bool{false, true} {
		cut := errors.New("cause")
		r := forwardRouter(t, func(req ForwardRequest) (ForwardResponse, error) {
			if write {
				_ = req.Begin(200, nil)
				_ = req.Write([]byte("x"))
			}
			return ForwardResponse{Usage: forebay.TokenUsage{InputTokens: 3}}, streamCutBy(cut)
		})
		call := &quota.Call{Deployment: "d"}
		resp, d, err := r.Forward(quota.WithCall(t.Context(), call), "m", (&taken{}).request(pathChat, askPlain))
		class := forebay.ClassTransient
		if write {
			class = forebay.ClassPermanent
		}
		if e := wantTask(t, err, class, CodeStreamCut); !e.Unmeasured || !errors.Is(err, cut) {
			t.Errorf("%+v", e)
		}
		if call.Outcome == nil || call.Outcome.Kind != quota.Transient || call.Outcome.Usage.PromptTokens != 3 || d.Name != "d" || resp.Usage.InputTokens != 3 {
			t.Errorf("outcome %+v of %v", call.Outcome, d)
		}
	}
}

func TestRouterForwardRefuses(t *testing.T) {
	called := 0
	r := forwardRouter(t, func(ForwardRequest) (ForwardResponse, error) {
		called++
		return ForwardResponse{}, nil
	})
	ask := func(ctx context.Context, model string, cost forebay.Money, tokens int64) error {
		req := (&taken{}).request(pathChat, `{"messages":[{"role":"user","content":"Hello there"}],"max_tokens":10,"n":2}`)
		req.CostLeft, req.TokensLeft = &cost, &tokens
		_, d, err := r.Forward(ctx, model, req)
		if err != nil && d != nil {
			t.Errorf("a refused call has a deployment: %v", err)
		}
		return err
	}
	other := quota.WithCall(t.Context(), &quota.Call{Deployment: "other"})
	wantTask(t, ask(t.Context(), "x", 1e12, 100), forebay.ClassPermanent, CodeUnknownModel)
	wantTask(t, ask(other, "m", 1e12, 100), forebay.ClassPermanent, CodeNotSupported)
	wantTask(t, ask(t.Context(), "m", 1e12, 25), forebay.ClassPermanent, CodeTokenLimit)
	wantTask(t, ask(t.Context(), "m", 0, 100), forebay.ClassPermanent, CodeCostLimit)
	if called != 0 {
		t.Errorf("%d calls", called)
	}
	if err := ask(t.Context(), "m", 1e12, 26); err != nil || called != 1 {
		t.Errorf("%v after %d calls", err, called)
	}
}
