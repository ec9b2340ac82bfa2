package model

import "context"

type firstTokenKey struct{}

// OnFirstToken returns a context that makes a provider call f once, when the first text of a
// streamed answer arrives.
func OnFirstToken(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, firstTokenKey{}, f)
}

func firstToken(ctx context.Context) func() {
	f, _ := ctx.Value(firstTokenKey{}).(func())
	return f
}

// began records how much text of a streamed answer has arrived. From the first on, it may be
// silent for the idle timeout.
func (a *answer) began(text int) {
	if text > 0 && a.idle > 0 {
		a.watch.idle, a.idle = a.idle, 0
		a.watch.moved(1)
	}
	if text > 0 && a.firstToken != nil {
		a.firstToken()
		a.firstToken = nil
	}
}
