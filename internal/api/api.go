// Package api serves Forebay over HTTP: REST with JSON, server-sent events and NDJSON, described by
// the OpenAPI document at /openapi.json.
//
// A request passes one chain. [API.ServeHTTP] gives it an id, recovers panics and writes the access
// log; the mux finds its route; the route's middleware authenticates it and checks the scope; the
// handler reads the body within limits, decodes it strictly and calls the service as the caller's
// tenant. Every error, from wherever, leaves as RFC 9457 application/problem+json with a stable code
// and the request id; what is not a [forebay.Error] is logged and hidden behind CodeInternal.
//
// Parameters are validated by huma. Bodies are not: they are decoded by this package, once, without
// copying the job's input, and with errors that name the field.
package api

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/webhook"
)

// Options configures an API. Only Service and Keys are needed for requests about jobs.
type Options struct {
	Service        Service
	Keys           Keys
	Tenants        Tenants
	Audit          AuditLog
	Reports        Reports
	Purger         Purger
	Messages       *bus.Service         // nil: no queues of plain messages
	Webhooks       *webhook.Service     // nil: none
	Documents      Documents            // nil: none
	Deployments    Deployments          // nil: none
	Orchestrations *orchestrate.Service // nil: none
	Limits         *limits.Meter        // judges how often requests come; nil: nothing does
	Logger         *slog.Logger         // nil: slog.Default
	Version        string               // shown at / and in the OpenAPI document
	MaxInputBytes  int64                // of one job; 0: forebay.DefaultMaxInputBytes
	MaxDocument    int64                // bytes; 0: forebay.DefaultMaxDocumentBytes
	MemoryBytes    int64                // large bodies and answers held at once; 0: 64 MiB
	Connections    int                  // open at once; 0: any number
	CodeInQuery    bool                 // an API key may come as ?code= where orchestrations are managed
}

// API is the HTTP interface of one server.
type API struct {
	service        Service
	keys           Keys
	tenants        Tenants
	audit          AuditLog
	reports        Reports
	purger         Purger
	messages       *bus.Service
	webhooks       *webhook.Service
	documents      Documents
	deployments    Deployments
	orchestrations *orchestrate.Service
	durable        durableNames
	codeInQuery    bool
	limits         *limits.Meter
	log            *slog.Logger
	version        string

	maxInput    int64 // bytes of one job's input
	maxDocument int64
	maxBody     int64 // bytes of one submit: the input and everything around it
	memory      *memory.Pool
	connections *connections
	waiters     waiters

	mux  *http.ServeMux
	huma huma.API

	draining context.Context // done when streams shall end
	drain    context.CancelFunc
}

// envelopeBytes is what a submit may hold besides its input: metadata, ids and their JSON escapes.
const envelopeBytes = 128 << 10

// New returns the API with all its routes.
func New(o Options) *API {
	a := &API{
		service:        o.Service,
		keys:           o.Keys,
		tenants:        o.Tenants,
		audit:          o.Audit,
		reports:        o.Reports,
		purger:         o.Purger,
		messages:       o.Messages,
		webhooks:       o.Webhooks,
		documents:      o.Documents,
		deployments:    o.Deployments,
		orchestrations: o.Orchestrations,
		codeInQuery:    o.CodeInQuery,
		limits:         o.Limits,
		log:            o.Logger,
		version:        o.Version,
		maxInput:       o.MaxInputBytes,
		mux:            http.NewServeMux(),
	}
	if a.deployments == nil {
		a.deployments = noDeployments{}
	}
	if a.log == nil {
		a.log = slog.Default()
	}
	if a.version == "" {
		a.version = "devel"
	}
	if a.maxInput <= 0 {
		a.maxInput = forebay.DefaultMaxInputBytes
	}
	if a.maxDocument = o.MaxDocument; a.maxDocument <= 0 {
		a.maxDocument = forebay.DefaultMaxDocumentBytes
	}
	if o.MemoryBytes <= 0 {
		o.MemoryBytes = 64 << 20
	}
	a.maxBody = a.maxInput + envelopeBytes
	// The largest body must leave room for others.
	a.memory = memory.New(max(o.MemoryBytes, 2*a.maxBody))
	a.connections = newConnections(o.Connections)
	a.waiters.tenants = map[string]int{}
	a.draining, a.drain = context.WithCancel(context.Background())

	a.huma = newHuma(a)
	a.routeJobs()
	a.routeBulk()
	a.routeEvents()
	a.routeQueues()
	a.routeMessages()
	a.routeTopics()
	a.routeWebhooks()
	a.routeDocuments()
	a.routeSetAside()
	a.routeReports()
	a.routeDeployments()
	a.routeOrchestrations()
	a.routeKeys()
	a.routeTenants()
	a.routeAudit()
	a.routeHealth()
	a.publish()
	return a
}

// Drain ends event streams, long polls and connections without a request, so that a graceful shutdown does not wait
// for them. Other requests go on.
func (a *API) Drain() {
	a.drain()
	a.connections.endUnused()
}

// untilDrain returns a context that also ends when the API drains.
func (a *API) untilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.draining, cancel)
	return ctx, func() { stop(); cancel() }
}
