package model

import "context"

type firstTokenKey struct{}

// OnFirstToken returns a context under which a provider calls f once, when the first text of a streamed
// answer has come.
func OnFirstToken(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, firstTokenKey{}, f)
}

func firstToken(ctx context.Context) func() {
	f, _ := ctx.Value(firstTokenKey{}).(func())
	return f
}

// began notes how much text of a streamed answer there is by now.
func (a *answer) began(text int) {
	if text > 0 && a.firstToken != nil {
		a.firstToken()
		a.firstToken = nil
	}
}
