package openai

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/bench/serving"
	"github.com/forebayhq/forebay/internal/sleep"
)

// liteLLMCalls makes the calls through LiteLLM's proxy, whose program -litellm names. It runs as
// its documentation says, with one worker and without a database.
func liteLLMCalls(ctx context.Context, b *measure.Bench, calls int) (s measure.Sample, err error) {
	model, err := serving.StartModel(serving.Behaviour{})
	if err != nil {
		return nil, err
	}
	defer model.Stop()
	config := filepath.Join(b.Dir, "litellm.yaml")
	settings := fmt.Sprintf("model_list:\n  - model_name: chat\n    litellm_params: {model: openai/canned, api_base: %s/v1, api_key: any}\n", model.URL)
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	proxy := exec.CommandContext(ctx, b.LiteLLM, "--config", config, "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--telemetry", "False")
	proxy.Env = append(os.Environ(), "LITELLM_LOG=ERROR", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true", "LITELLM_LOCAL_MODEL_COST_MAP=True", "NO_PROXY=127.0.0.1")
	proxy.Stdout, proxy.Stderr = io.Discard, os.Stderr
	if err := proxy.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = proxy.Process.Signal(syscall.SIGTERM)
		_ = proxy.Wait()
	}()
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	c := serving.NewClient()
	defer c.CloseIdleConnections()
	for begun := time.Now(); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health/liveliness", nil)
		if err != nil {
			return nil, err
		}
		if _, err = c.Send(req); err == nil {
			break
		}
		if time.Since(begun) > 2*time.Minute {
			return nil, fmt.Errorf("LiteLLM does not answer: %w", err)
		}
		if err := sleep.For(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return timedCalls(ctx, c, model, url+"/v1/chat/completions", calls)
}
