package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// runChild is what a child process does: serve until standard input closes.
func runChild(encoded string) error {
	var spec childSpec
	if err := json.Unmarshal([]byte(encoded), &spec); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	switch spec.Role {
	case "idle":
		fmt.Println("idle")
		<-ctx.Done()
		return nil
	case "bare":
		return serveBare(ctx, spec.Model)
	case "proxy":
		return serveProxy(ctx, spec.Model)
	case "orchestrations":
		return serveOrchestrations(ctx, spec)
	case "amqp":
		return serveBareAMQP(ctx, spec.Database)
	case "nats":
		return serveNATS(ctx, spec.Config)
	case "simulator":
		return serveSimulator(ctx, spec.Simulator)
	default:
		return serveForebay(ctx, spec)
	}
}

// serveForebay runs a server with its defaults, but for where the model is and for a quick stop.
func serveForebay(ctx context.Context, spec childSpec) error {
	if spec.Profile != "" {
		stop, err := profile(spec.Profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	options := server.Options{
		Database: spec.Database, Blob: spec.Blobs, Listen: "127.0.0.1:0", Log: server.Log{Level: "error"},
		Deployments: []server.Deployment{{
			Name: "canned", Provider: server.ProviderOpenAI, Endpoint: spec.Model + "/v1", Model: "canned",
			IdleTimeout: 10 * time.Minute, // a model that hangs hangs for the whole round
		}},
		Queues:          map[string]server.Queue{forebay.DefaultQueue: spec.Queue},
		ServiceBus:      server.ServiceBus{Plain: spec.ServiceBus},
		ShutdownTimeout: 100 * time.Millisecond,
	}
	if len(spec.Deployments) > 0 {
		options.Deployments = spec.Deployments
		var names []string
		for i := range options.Deployments {
			d := &options.Deployments[i]
			d.APIKey = "any"
			names = append(names, d.Name)
		}
		options.Models = map[string]server.Model{"chat": server.InOrder(names...)}
	}
	server.TuneRuntime(options) // as the program forebay does
	s, err := server.New(options)
	if err != nil {
		return err
	}
	go func() {
		addr := s.Addr(ctx)
		if addr == nil {
			return
		}
		if _, bus := s.ServiceBusAddr(ctx); bus != nil {
			fmt.Println(addr, bus)
			return
		}
		fmt.Println(addr)
	}()
	return s.Run(ctx)
}

// serveBare answers each request with what the model says to it: what Forebay does, without
// promising anything.
func serveBare(ctx context.Context, model string) error {
	upstream := newClient()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req forebay.SubmitRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body := fmt.Appendf(nil, `{"model":"canned","messages":[{"role":"user","content":%s}],"stream":true}`, req.Input)
		answer, err := upstream.post(r.Context(), model+"/v1/chat/completions", "application/json", body)
		if err != nil {
			http.Error(w, "the model did not answer", http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer)
	})}
	return serveUntil(ctx, server)
}

// serveProxy passes everything on, as Go's reverse proxy does.
func serveProxy(ctx context.Context, model string) error {
	upstream, err := url.Parse(model)
	if err != nil {
		return err
	}
	return serveUntil(ctx, &http.Server{Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) }, Transport: newClient().Transport,
	}})
}

func serveUntil(ctx context.Context, server *http.Server) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// client is an HTTP client that keeps a connection for each of its callers.
type client struct{ *http.Client }

func newClient() client {
	return client{&http.Client{Transport: &http.Transport{
		MaxIdleConns: 0, MaxIdleConnsPerHost: 1024, DisableCompression: true,
	}}}
}

// statusError is an answer that is not a success.
type statusError struct {
	code       int
	retryAfter string
	body       []byte
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %.300s", e.code, e.body) }

// post returns the whole answer.
func (c client) post(ctx context.Context, url, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	return c.do(req)
}

// firstEvent returns how long the first server-sent event of the answer took, of the post that
// asks for it, and reads the rest.
func (c client) firstEvent(ctx context.Context, url string, body []byte) (time.Duration, error) {
	begun := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	_, err = r.ReadString('\n')
	first := time.Since(begun)
	if err == nil && resp.StatusCode >= 300 {
		err = &statusError{code: resp.StatusCode}
	}
	_, restErr := io.Copy(io.Discard, r)
	return first, errors.Join(err, restErr)
}

// get decodes a JSON answer into v.
func (c client) get(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	body, err := c.do(req)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

func (c client) do(req *http.Request) ([]byte, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		return nil, &statusError{resp.StatusCode, resp.Header.Get("Retry-After"), body}
	}
	return body, err
}
