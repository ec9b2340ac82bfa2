package openai

import (
	"errors"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// createResponse answers POST /responses.
func (a *API) createResponse(r *api.SurfaceRequest) error {
	body, release, err := r.Body(a.MaxBody)
	if err != nil {
		return err
	}
	defer release()
	req, err := parse(body, r.PathValue("deployment"))
	if err != nil {
		return err
	}
	asked, err := bridge.Parse(body, req.model)
	if err != nil {
		return refused(err)
	}
	need, err := a.needOf(asked)
	if err != nil {
		return err
	}
	id, created := ids.New(bridge.IDPrefix), time.Now()
	p := &pending{body: asked.Native(), stream: asked.Stream, need: need, translate: func() translation {
		return &asResponse{Exchange: bridge.NewExchange(asked, id, created, asked.Stream, bridge.State{}), stream: asked.Stream}
	}}
	return a.make(r, req, endpointResponses, p)
}

// needOf returns what a call for a response needs, or why no deployment of its model can make it.
func (a *API) needOf(asked *bridge.Request) (forebay.CallEstimate, error) {
	need := model.EstimateForward(endpointResponses, asked.Native())
	need.AsOpenAI = true
	if err := a.served(asked.Model, need); err != nil {
		return need, err
	}
	if beyond := asked.Beyond(); beyond != nil {
		need.AsResponses = true
		if _, can := a.Serves(asked.Model, need); !can {
			return need, refused(beyond)
		}
	}
	return need, nil
}

// refused is the failure for a request that the bridge refuses.
func refused(err error) error {
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return badRequest(e.Param, e.Code, e.Message)
	}
	return err
}
