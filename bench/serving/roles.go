package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/server"
)

// ServeForebay runs a server with its defaults, but for where the model is and for a quick stop.
func ServeForebay(ctx context.Context, spec ChildSpec) error {
	if spec.Profile != "" {
		stop, err := measure.Profile(spec.Profile)
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

// ServeBare answers each request with what the model says to it: what Forebay does, without
// promising anything.
func ServeBare(ctx context.Context, model string) error {
	upstream := NewClient()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req forebay.SubmitRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body := fmt.Appendf(nil, `{"model":"canned","messages":[{"role":"user","content":%s}],"stream":true}`, req.Input)
		answer, err := upstream.PostBody(r.Context(), model+"/v1/chat/completions", "application/json", body)
		if err != nil {
			http.Error(w, "the model did not answer", http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer)
	})}
	return serveUntil(ctx, server)
}

// ServeProxy passes everything on, as Go's reverse proxy does.
func ServeProxy(ctx context.Context, model string) error {
	upstream, err := url.Parse(model)
	if err != nil {
		return err
	}
	return serveUntil(ctx, &http.Server{Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) }, Transport: NewClient().Transport,
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
