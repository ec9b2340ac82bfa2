package api

import "context"

// waiting counts a call as a waiting request of its tenant until leave. The returned context also
// ends when the API drains.
func (a *API) waiting(ctx context.Context, c *call) (waiting context.Context, leave func(), err error) {
	left, err := a.waiters.Enter(c.home)
	if err != nil {
		return nil, nil, err
	}
	c.waited = true
	waiting, cancel := a.untilDrain(ctx)
	return waiting, func() { cancel(); left() }, nil
}
