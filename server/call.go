package server

import (
	"context"
	"errors"
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
}

// embedTask is the built-in task that embeds texts.
const embedTask = "embed"

// callTime bounds one call of CallDeployments.
const callTime = 30 * time.Second

// CallDeployments calls each deployment that is not simulated once, with a few tokens, one after
// the other. The options must be valid.
func CallDeployments(ctx context.Context, opts Options) (calls []DeploymentCall) {
	o := opts.WithDefaults()
	m, known, err := o.models(nil)
	if err != nil {
		return []DeploymentCall{{Err: err.Error()}}
	}
	for _, d := range o.Deployments {
		if d.Provider == ProviderSim {
			continue
		}
		provider, err := m.provider(d, o.Limits.MaxOutputBytes)
		begun := time.Now()
		if err == nil {
			err = callOnce(ctx, provider, o.embedsOnly(d.Name, known))
		}
		call := DeploymentCall{Deployment: d.Name, Took: time.Since(begun)}
		if err != nil {
			call.Err = err.Error()
			taskErr, ok := errors.AsType[*forebay.TaskError](err)
			call.Denied = ok && taskErr.Code == model.CodeUnauthorized
		}
		calls = append(calls, call)
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
