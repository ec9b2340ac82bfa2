package model

import (
	"context"
	"errors"
	"sync"

	"github.com/forebayhq/forebay"
)

// Forward forwards one request. The deployment is nil if nothing was called.
//
// Where Write was called, the class of an error is Permanent: nobody can make the call again
// behind the client's back. A request that says Again is the exception. The admission of the call
// still learns the real class. Without an admission, deployments whose provider is no [Forwarder]
// are passed over.
//
// A request without an output limit is estimated with the deployment's. The limit is not sent.
func (r *Router) Forward(ctx context.Context, model string, req ForwardRequest) (ForwardResponse, *Deployment, error) {
	need := sync.OnceValue(func() *forwardNeed { return readNeed(req.Path, req.Body) })
	count := sync.OnceValue(func() int64 { return need().promptTokens(ctx) })
	l, err := r.admit(ctx, model, func(d *lane, left left) string {
		if !Takes(d.Provider, req.Path) {
			return CodeNotSupported
		}
		if left == unlimited {
			return ""
		}
		return left.refuses(d.Price, need().maxPromptTokens(), need().output(d.outputLimit()), count)
	}, left{req.CostLeft, req.TokensLeft})
	if err != nil {
		return ForwardResponse{}, nil, err
	}
	written := false
	write := req.Write
	req.Write = func(b []byte) error {
		written = true
		return write(b)
	}
	var resp ForwardResponse
	req.OnLimits = reportLimits(ctx, req.OnLimits)
	ReportSent(ctx)
	err = l.call(func() (int64, error) {
		resp, err = l.Provider.(Forwarder).Forward(ctx, req)
		return resp.Usage.OutputTokens, err
	})
	ReportOutcome(ctx, resp.Limits, resp.Usage, resp.CachedTokens, err)
	if written && !req.Again {
		err = final(err)
	}
	return resp, l.Deployment, err
}

// final returns the error of a call whose answer has already begun to reach its client.
func final(err error) error {
	t, ok := errors.AsType[*forebay.TaskError](err)
	if !ok || t.Class == forebay.ClassPermanent {
		return err
	}
	ended := *t
	ended.Class, ended.RetryAfter, ended.Unmeasured = forebay.ClassPermanent, 0, true
	return &ended
}

// output returns how many tokens all answers may have; unsaid is the limit of one for which the
// request says none.
func (n *forwardNeed) output(unsaid int) int64 {
	if n.maxOutput > 0 {
		return n.maxOutput * n.answers
	}
	return int64(unsaid) * n.answers
}
