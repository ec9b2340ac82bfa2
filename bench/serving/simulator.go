package serving

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

// Simulator is the model simulator of "forebay sim" in a process of its own. Its deployments have
// real quotas.
type Simulator struct {
	*Child
	Client
}

// ServeSimulator is what that process does.
func ServeSimulator(ctx context.Context, file string) error {
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

// SimulatedQuota is one deployment. It counts as Azure does, in windows of a minute, unless kind
// or options say otherwise.
type SimulatedQuota struct {
	Kind            modelsim.Kind // "": KindAzure
	Requests        int           // a minute; 0: what Azure gives with so many tokens
	Options         string        // further ones of its YAML, each with a comma before it
	Name            string
	TokensPerMinute int
	Phase           time.Duration // when the first window ends
	EstimateFactor  float64       // what prompts are charged by their tokens, with a spread of a tenth; 0: exactly these
}

// RequestsPerMinute is what Azure gives with so many tokens.
func (q SimulatedQuota) RequestsPerMinute() int {
	if q.Requests > 0 {
		return q.Requests
	}
	return q.TokensPerMinute / 1000 * 6
}

// StartSimulator starts a simulator with these deployments.
func StartSimulator(ctx context.Context, deployments ...SimulatedQuota) (*Simulator, error) {
	var file strings.Builder
	file.WriteString("seed: 1\ndeployments:\n")
	for _, d := range deployments {
		estimate, kind := "", d.Kind
		if kind == "" {
			kind = modelsim.KindAzure
		}
		if d.EstimateFactor > 0 {
			estimate = fmt.Sprintf(", estimate_factor: %g, estimate_spread: 0.1", d.EstimateFactor)
		}
		fmt.Fprintf(&file, "  - {name: %s, kind: %s, tokens_per_minute: %d, requests_per_minute: %d, phase: %v, first_token: 300ms, tokens_per_second: 400%s%s}\n",
			d.Name, kind, d.TokensPerMinute, d.RequestsPerMinute(), d.Phase, estimate, d.Options)
	}
	c, err := StartChild(ctx, ChildSpec{Role: "simulator", Simulator: file.String()})
	if err != nil {
		return nil, err
	}
	return &Simulator{c, NewClient()}, nil
}

// Close ends the process.
func (s *Simulator) Close() error {
	s.CloseIdleConnections()
	return s.Stop()
}

// Configured is the deployment as a user of Forebay describes it.
func (s *Simulator) Configured(q SimulatedQuota) server.Deployment {
	if q.Kind == modelsim.KindOpenAI {
		return server.Deployment{Name: q.Name, Provider: server.ProviderOpenAI, Endpoint: s.URL + "/v1", Model: q.Name,
			TokensPerMinute: q.TokensPerMinute, RequestsPerMinute: q.RequestsPerMinute()}
	}
	return server.Deployment{Name: q.Name, Provider: server.ProviderAzure, Endpoint: s.URL, Deployment: q.Name,
		TokensPerMinute: q.TokensPerMinute, RequestsPerMinute: q.RequestsPerMinute()}
}

// Restart begins the deployments' time anew, with nothing used and nothing seen.
func (s *Simulator) Restart(ctx context.Context) error {
	_, err := s.PostBody(ctx, s.URL+"/_sim/reset", "application/json", nil)
	return err
}

// Script replaces the faults of a deployment, or of all (""): one that has a name, or YAML.
func (s *Simulator) Script(ctx context.Context, deployment, faults string, scale float64) error {
	url := fmt.Sprintf("%s/_sim/faults?deployment=%s&scale=%g", s.URL, deployment, scale)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(faults))
	if err != nil {
		return err
	}
	_, err = s.Send(req)
	return err
}

// Stats says what the deployments have seen.
func (s *Simulator) Stats(ctx context.Context) (r modelsim.Report, err error) {
	return r, s.get(ctx, s.URL+"/_sim/stats", &r)
}

// Refused is how many calls got a 429 of the quota's.
func Refused(s modelsim.Stats) (n int64) {
	for _, count := range s.Throttled {
		n += count
	}
	return n
}
