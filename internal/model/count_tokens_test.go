package model

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebayhq/forebay"
)

// silent is a provider's endpoint that never answers.
type silent struct{ calls int }

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.calls++
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A count ends in time, though no provider answers. Nobody is asked for a client that has left.
func TestCountTokensEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpoint := &silent{}
		var deployments []*Deployment
		for _, name := range []string{"east", "west", "north"} {
			p, err := NewAnthropic(AnthropicConfig{Model: "m", APIKey: testKey, HTTPConfig: HTTPConfig{Transport: endpoint, IdleTimeout: time.Hour}})
			if err != nil {
				t.Fatal(err)
			}
			deployments = append(deployments, &Deployment{Name: name, Provider: p})
		}
		count := func(ctx context.Context) (took time.Duration, calls int, err error) {
			began, before := time.Now(), endpoint.calls
			_, err = CountTokens(ctx, deployments, []byte(`{"model":"x"}`), nil)
			return time.Since(began), endpoint.calls - before, err
		}
		took, calls, err := count(t.Context())
		if wantTask(t, err, forebay.ClassTransient, CodeGatewayTimeout); took != countCalls*countTimeout || calls != countCalls {
			t.Errorf("%d calls took %v", calls, took)
		}
		leaves, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if took, calls, err := count(leaves); !errors.Is(err, context.DeadlineExceeded) || took != time.Second || calls != 1 {
			t.Errorf("%d calls for one who left took %v: %v", calls, took, err)
		}
	})
}
