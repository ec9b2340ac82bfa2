package server_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// Who waits for a call that a stop cuts off is told so. The connection does not just break.
func TestStopAnswersCallsThatItCutsOff(t *testing.T) {
	t.Parallel()
	model := modelsim.StartTest(func(modelsim.Call) modelsim.Reply { return modelsim.Reply{Hang: true} })
	t.Cleanup(model.Close)
	s, stop := servertest.Run(t, server.Options{
		Database: "sqlite:" + t.TempDir() + "/forebay.db", Listen: "127.0.0.1:0", ShutdownTimeout: time.Second,
		Deployments: []server.Deployment{simulatedDeployment(model)},
	})
	t.Cleanup(stop)
	type answer struct {
		status int
		body   string
		err    error
	}
	answered := make(chan answer, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := "http://" + s.Addr(t.Context()).String() + "/v1/chat/completions"
	go func() {
		body := []byte(`{"model":"chat","messages":[{"role":"user","content":"x"}]}`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
		if err != nil {
			answered <- answer{err: err}
			return
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answered <- answer{err: err}
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		answered <- answer{resp.StatusCode, string(text), err}
	}()
	servertest.AwaitModel(t, model, servertest.InFlight(1))
	stop()
	if got := <-answered; got.err != nil || got.status != http.StatusServiceUnavailable {
		t.Errorf("answered %d %q, %v", got.status, got.body, got.err)
	}
}
