package responses

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// Call is a call for a response whose answer somebody keeps, such as the line of a batch.
type Call struct {
	Tenant     string
	Model      string // logical
	Body       []byte // of the request
	CostLeft   *forebay.Money
	TokensLeft *int64
}

// Answer makes a call and returns the response. It is stored, too, unless the request says
// otherwise. A request that is refused is a *bridge.Error. Other errors are those of
// [model.Router.Forward], whose answer and deployment it returns as well.
func (s *Service) Answer(ctx context.Context, forwarder Forwarder, c Call) (object json.RawMessage, resp model.ForwardResponse, called *model.Deployment, err error) {
	req, err := bridge.Parse(c.Body, c.Model)
	if err != nil {
		return nil, resp, nil, err
	}
	if req.Stream || req.Background {
		return nil, resp, nil, &bridge.Error{Param: "stream", Message: "Neither 'stream' nor 'background' can be set here."}
	}
	if err := s.Complete(ctx, c.Tenant, req); err != nil {
		if refusal, ok := errors.AsType[*bridge.Error](err); ok {
			return nil, resp, nil, refusal
		}
		return nil, resp, nil, failure(err)
	}
	id, created := ids.New(bridge.IDPrefix), time.Now()
	var x *bridge.Exchange
	resp, called, err = forwarder.Forward(ctx, c.Model, model.ForwardRequest{
		Path: "responses", Body: req.Native(), CostLeft: c.CostLeft, TokensLeft: c.TokensLeft, WantUsage: true, Again: true,
		Choose: func(d model.Dialect) (string, []byte, error) {
			x = bridge.NewExchange(req, id, created, false, bridge.State{})
			return x.Choose(bridge.Dialect(d))
		},
		Begin: func(int, http.Header) error { return nil },
		Write: func(part []byte) error { _, err := x.Write(part); return err },
	})
	if err != nil {
		return nil, resp, called, err
	}
	end, err := x.End(resp.Usage, time.Now())
	if err == nil && req.Store {
		err = s.Record(ctx, c.Tenant, Finished{ID: id, Request: req, Created: created, Body: c.Body, End: end})
	}
	if err != nil {
		return nil, resp, called, failure(err)
	}
	return end.Object, resp, called, nil
}
