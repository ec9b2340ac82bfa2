package openai

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
	"github.com/forebayhq/forebay/internal/ids"
	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// endpointCompact is the endpoint that makes conversations shorter.
const endpointCompact = "responses/compact"

// compact answers POST /responses/compact.
func (a *API) compact(r *api.SurfaceRequest) error {
	req, release, err := a.read(r)
	if err != nil {
		return err
	}
	defer release()
	c, asked, err := bridge.ParseCompaction(req.body, req.model)
	if err != nil {
		return refused(err)
	}
	if known, _ := a.Serves(req.model, forebay.CallEstimate{}); !known {
		return unknownModel(req.model)
	}
	if err := a.Responses.Complete(r.Context(), r.Caller.Tenant, asked); err != nil {
		return refused(err)
	}
	native := c.Native()
	need := model.EstimateForward(endpointCompact, native)
	need.AsOpenAI = true
	if err := a.able(asked, &need); err != nil {
		return err
	}
	seal, err := a.Responses.Sealer(r.Context(), r.Caller.Tenant) // before the call: it is paid for
	if err != nil {
		return err
	}
	id, created := ids.New(bridge.IDPrefix), time.Now()
	return a.make(r, req, endpointCompact, &pending{body: native, need: need, translate: func() translation {
		return &asCompaction{Compaction: c.Begin(id, created), seal: seal}
	}})
}

// asCompaction is the translation of a call for a compaction.
type asCompaction struct {
	*bridge.Compaction
	seal func(summary string) string
}

func (x *asCompaction) choose(d model.Dialect) (path string, body []byte, err error) {
	return x.Choose(bridge.Dialect(d))
}

func (x *asCompaction) write(part []byte) ([]byte, error) { return nil, x.Write(part) }

func (x *asCompaction) end(_ context.Context, resp model.ForwardResponse) ([]byte, error) {
	return x.End(resp.Usage, x.seal)
}

// fail is for streams, and a compaction is none.
func (x *asCompaction) fail(*failure) []byte { return nil }
