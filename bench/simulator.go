package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/server"
)

// simulator is the model simulator of "forebay sim" in a process of its own. Its deployments have
// real quotas.
type simulator struct {
	*child
	client
}

// serveSimulator is what that process does.
func serveSimulator(ctx context.Context, file string) error {
	options, err := modelsim.ReadServerOptions([]byte(file))
	if err != nil {
		return err
	}
	s, err := modelsim.NewServer(options, nil)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return s.Run(ctx, listener)
}

// simulatedQuota is one deployment. It counts as Azure does, in windows of a minute, unless kind
// or options say otherwise.
type simulatedQuota struct {
	kind            modelsim.Kind // "": KindAzure
	requests        int           // a minute; 0: what Azure gives with so many tokens
	options         string        // further ones of its YAML, each with a comma before it
	name            string
	tokensPerMinute int
	phase           time.Duration // when the first window ends
	estimateFactor  float64       // what prompts are charged by their tokens, with a spread of a tenth; 0: exactly these
}

// requestsPerMinute is what Azure gives with so many tokens.
func (q simulatedQuota) requestsPerMinute() int {
	if q.requests > 0 {
		return q.requests
	}
	return q.tokensPerMinute / 1000 * 6
}

func startSimulator(ctx context.Context, deployments ...simulatedQuota) (*simulator, error) {
	var file strings.Builder
	file.WriteString("seed: 1\ndeployments:\n")
	for _, d := range deployments {
		estimate, kind := "", d.kind
		if kind == "" {
			kind = modelsim.KindAzure
		}
		if d.estimateFactor > 0 {
			estimate = fmt.Sprintf(", estimate_factor: %g, estimate_spread: 0.1", d.estimateFactor)
		}
		fmt.Fprintf(&file, "  - {name: %s, kind: %s, tokens_per_minute: %d, requests_per_minute: %d, phase: %v, first_token: 300ms, tokens_per_second: 400%s%s}\n",
			d.name, kind, d.tokensPerMinute, d.requestsPerMinute(), d.phase, estimate, d.options)
	}
	c, err := startChild(ctx, childSpec{Role: "simulator", Simulator: file.String()})
	if err != nil {
		return nil, err
	}
	return &simulator{c, newClient()}, nil
}

func (s *simulator) close() error {
	s.CloseIdleConnections()
	return s.stop()
}

// configured is the deployment as a user of Forebay describes it.
func (s *simulator) configured(q simulatedQuota) server.Deployment {
	if q.kind == modelsim.KindOpenAI {
		return server.Deployment{Name: q.name, Provider: server.ProviderOpenAI, Endpoint: s.url + "/v1", Model: q.name,
			TokensPerMinute: q.tokensPerMinute, RequestsPerMinute: q.requestsPerMinute()}
	}
	return server.Deployment{Name: q.name, Provider: server.ProviderAzure, Endpoint: s.url, Deployment: q.name,
		TokensPerMinute: q.tokensPerMinute, RequestsPerMinute: q.requestsPerMinute()}
}

// restart begins the deployments' time anew, with nothing used and nothing seen.
func (s *simulator) restart(ctx context.Context) error {
	_, err := s.post(ctx, s.url+"/_sim/reset", "application/json", nil)
	return err
}

// script replaces the faults of a deployment, or of all (""): one that has a name, or YAML.
func (s *simulator) script(ctx context.Context, deployment, faults string, scale float64) error {
	url := fmt.Sprintf("%s/_sim/faults?deployment=%s&scale=%g", s.url, deployment, scale)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(faults))
	if err != nil {
		return err
	}
	_, err = s.do(req)
	return err
}

func (s *simulator) stats(ctx context.Context) (r modelsim.Report, err error) {
	return r, s.get(ctx, s.url+"/_sim/stats", &r)
}

// refused is how many calls got a 429 of the quota's.
func refused(s modelsim.Stats) (n int64) {
	for _, count := range s.Throttled {
		n += count
	}
	return n
}
