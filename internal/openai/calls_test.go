package openai

import (
	"context"
	"strconv"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

type broken struct{}

func (broken) Forward(context.Context, string, model.ForwardRequest) (model.ForwardResponse, *model.Deployment, error) {
	panic("broken")
}

// The client of a call that panics does not wait for it.
func TestCallThatPanicsHasEnded(t *testing.T) {
	calls := NewCalls()
	p := &pending{ended: make(chan struct{}, 1)}
	task := calls.Tasks(broken{}, []string{"chat"})[0]
	input := strconv.Quote(calls.add(p))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = task.Run(t.Context(), forebay.TaskCall{Input: []byte(input)})
	}()
	<-p.ended
	if calling, _, done, _, err := p.state(); calling || done || err == nil {
		t.Error(calling, done, err)
	}
	p.leave()
}
