package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/model"
)

// DeploymentCall is the outcome of one call of a deployment.
type DeploymentCall struct {
	Deployment string
	Took       time.Duration
	Err        string // the error without secrets; "": success
	Denied     bool   // the provider refuses the key or its permissions
	Untried    bool   // the provider says nothing of the key
	Unlisted   string // the model, if the provider's list of models lacks it
}

// embedTask is the built-in task that embeds texts.
const embedTask = "embed"

// callTime bounds one call of CallDeployments, and askTime one question of AskDeployments.
const (
	callTime = 30 * time.Second
	askTime  = 10 * time.Second
)

// CallDeployments calls each deployment that is not simulated once, with a few tokens, one after
// the other. The options must be valid.
func CallDeployments(ctx context.Context, opts Options) (calls []DeploymentCall) {
	return tryDeployments(opts, func(do func()) { do() }, func(_ *DeploymentCall, _ Deployment, provider model.Provider, embeds bool) error {
		return callOnce(ctx, provider, embeds)
	})
}

// AskDeployments asks the provider of each deployment that is not simulated for its models, all at
// once. That costs nothing, and a key that is wrong is refused. The options must be valid.
func AskDeployments(ctx context.Context, opts Options) (calls []DeploymentCall) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var asking sync.WaitGroup
	calls = tryDeployments(opts, asking.Go, func(call *DeploymentCall, d Deployment, provider model.Provider, _ bool) (err error) {
		var said model.KeyAnswer
		if asker, ok := provider.(model.KeyAsker); ok {
			said, err = asker.AskKey(ctx)
		}
		if call.Untried = !said.Said && err == nil; said.Unlisted {
			call.Unlisted = d.Model
		}
		return err
	})
	asking.Wait()
	return calls
}

// tryDeployments has start make try of each deployment that is not simulated.
func tryDeployments(opts Options, start func(func()), try func(call *DeploymentCall, d Deployment, p model.Provider, embeds bool) error) []DeploymentCall {
	o := opts.WithDefaults()
	m, known, err := o.models(nil, nil)
	if err != nil {
		return []DeploymentCall{{Err: err.Error()}}
	}
	calls := make([]DeploymentCall, 0, len(o.Deployments)) // never grown: those that are tried write into it
	for _, d := range o.Deployments {
		if d.Provider == ProviderSim {
			continue
		}
		calls = append(calls, DeploymentCall{Deployment: d.Name})
		call := &calls[len(calls)-1]
		start(func() {
			provider, err := m.provider(d, o.Limits.MaxOutputBytes, nil)
			begun := time.Now()
			if err == nil {
				err = try(call, d, provider, o.embedsOnly(d.Name, known))
			}
			if call.Took = time.Since(begun); err != nil {
				call.Err = err.Error()
				taskErr, ok := errors.AsType[*forebay.TaskError](err)
				call.Denied = ok && taskErr.Code == model.CodeUnauthorized
			}
		})
	}
	return calls
}

func callOnce(ctx context.Context, provider model.Provider, embeds bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if embeds {
		_, err = provider.Embed(ctx, model.EmbedRequest{Inputs: []string{"hello"}})
		return err
	}
	_, err = provider.Chat(ctx, model.ChatRequest{Messages: []model.Message{{Role: "user", Content: "Say hello."}}, MaxOutputTokens: 16})
	return err
}

// embedsOnly reports whether only embedding tasks call a deployment.
func (o Options) embedsOnly(deployment string, known map[string]forebay.Task) bool {
	embeds := false
	for name, task := range known {
		if !o.serves(deployment, task.Model) {
			continue
		}
		if base := or(o.Tasks[name].Extends, name); base != embedTask {
			return false
		}
		embeds = true
	}
	return embeds
}
