package quota

import "context"

// Call is one admitted call on its way from whoever claimed it to the provider and back.
type Call struct {
	Deployment string
	// Headers, if set, takes what the answer's headers say as soon as they are there.
	Headers func(Headers)
	// Outcome is how the call ended; nil: nothing was sent.
	Outcome *Outcome
}

type callKey struct{}

// WithCall returns a context that carries the call.
func WithCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// CallOf returns the call that a context carries; nil: it was not admitted by anybody.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}
