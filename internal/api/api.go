// Package api serves Forebay over HTTP: REST with JSON, server-sent events and NDJSON, described
// by the OpenAPI document at /openapi.json.
//
// A request passes one chain. [API.ServeHTTP] gives it an id, recovers panics and writes the
// access log. The mux finds its route. The middleware of the route authenticates the caller and
// checks the scope. The handler reads the body within limits, decodes it strictly and calls the
// service as the caller's tenant.
//
// Every error leaves as RFC 9457 application/problem+json, with a stable code and the request id.
// An error that is not a [forebay.Error] is logged and hidden behind CodeInternal.
//
// huma validates parameters, but not bodies. This package decodes bodies once, without copying the
// job's input, and its errors name the field.
//
// # Connections
//
// A third of the file descriptors is for HTTP connections (limits.connections); each may hold a
// file of the blob storage too. A connection is anonymous until a request on it has a valid key.
// One address has a quarter of all connections for anonymous ones. Where these are used up, or
// all are, the oldest anonymous connection is closed for a new one. A client with a key sends it
// at once, so it is never the oldest for long. A tenant may have three times as many connections
// as it leaves free. What goes beyond closes one of its idle ones, or is told 503.
//
// Bodies must come at 64 KiB/s, and answers be read at 32 KiB/s, with 30 seconds to spare. The
// rate is counted only while the server waits for the client. A body that is too slow is told
// 408. An answer that is given before the body was read is sent at once. Then the server reads
// for one more second, so that the client sees it, and closes the connection. A stop leaves
// transfers two seconds.
package api

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/connections"
	"github.com/forebayhq/forebay/internal/deltas"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/memory"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/orchestrate"
	"github.com/forebayhq/forebay/internal/webhook"
)

// Options configures an API. Only Jobs and Keys are needed for requests about jobs.
type Options struct {
	Jobs           Jobs
	Deltas         *deltas.Hub // of running calls; nil: none
	Keys           Keys
	SignIns        SignIns // nil: nobody signs in to the dashboard
	Tenants        Tenants
	Audit          AuditLog // nil: nobody writes down who opens payloads
	Reports        Reports
	Purger         Purger
	Messages       *messaging.Service   // nil: no queues of plain messages
	Webhooks       *webhook.Service     // nil: none
	Documents      Documents            // nil: none
	Deployments    Deployments          // nil: none
	Orchestrations *orchestrate.Service // nil: none
	Workflows      []forebay.Workflow   // that are declared, by name
	Live           Live                 // nil: nobody tells what happens now
	Limits         *limits.Meter        // limits the rate of requests; nil: no limits
	Logger         *slog.Logger         // nil: slog.Default
	Version        string               // shown at / and in the OpenAPI document
	MaxInputBytes  int64                // of one job; 0: forebay.DefaultMaxInputBytes
	MaxDocument    int64                // bytes; 0: forebay.DefaultMaxDocumentBytes
	MemoryBytes    int64                // large bodies and answers held at once; 0: 64 MiB
	Connections    int                  // open at once; 0: no limit
	Waiters        *connections.Waiters // requests that wait; nil: one of its own
	Surfaces       []Surface            // interfaces of other products
	Dashboard      string               // path of the dashboard; "": none
	Closed         bool                 // without API keys it answers nobody, not even its own machine
	CodeInQuery    bool                 // routes of orchestrations accept an API key as ?code=
}

// API is the HTTP interface of one server.
type API struct {
	jobs           Jobs
	deltas         *deltas.Hub
	keys           Keys
	signIns        SignIns
	tenants        Tenants
	audit          AuditLog
	reports        Reports
	purger         Purger
	messages       *messaging.Service
	webhooks       *webhook.Service
	documents      Documents
	deployments    Deployments
	orchestrations *orchestrate.Service
	workflows      []forebay.Workflow
	live           Live
	durable        durableNames
	codeInQuery    bool
	closed         bool
	surfaces       []Surface
	dashboard      string
	limits         *limits.Meter
	log            *slog.Logger
	version        string

	maxInput    int64 // bytes of one job's input
	maxDocument int64
	maxBody     int64 // bytes of one submit: the input and everything around it
	memory      *memory.Pool
	connections *connections.Set
	waiters     *connections.Waiters
	openings    openings
	simulating  sync.Mutex // held while the faults of a simulated deployment are changed

	mux  *http.ServeMux
	huma huma.API

	draining context.Context // done when streams must end
	drain    context.CancelFunc
}

// The handlers of one subject each: jobs; queues, topics and their messages; orchestrations; what
// happens now; who has signed in.
type (
	jobRoutes           struct{ *API }
	queueRoutes         struct{ *API }
	orchestrationRoutes struct{ *API }
	liveRoutes          struct{ *API }
	signInRoutes        struct{ *API }
)

// envelopeBytes is what a submit may hold besides its input: metadata, ids and their JSON escapes.
const envelopeBytes = 128 << 10

// New returns the API with all its routes.
func New(o Options) *API {
	a := &API{
		jobs:           o.Jobs,
		deltas:         o.Deltas,
		keys:           o.Keys,
		signIns:        o.SignIns,
		tenants:        o.Tenants,
		audit:          o.Audit,
		reports:        o.Reports,
		purger:         o.Purger,
		messages:       o.Messages,
		webhooks:       o.Webhooks,
		documents:      o.Documents,
		deployments:    o.Deployments,
		orchestrations: o.Orchestrations,
		workflows:      o.Workflows,
		live:           o.Live,
		codeInQuery:    o.CodeInQuery,
		closed:         o.Closed,
		surfaces:       o.Surfaces,
		dashboard:      o.Dashboard,
		limits:         o.Limits,
		waiters:        cmp.Or(o.Waiters, &connections.Waiters{}),
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
	// The largest body must leave memory for other bodies.
	a.memory = memory.New(max(o.MemoryBytes, 2*a.maxBody))
	a.connections = connections.New(o.Connections)
	a.draining, a.drain = context.WithCancel(context.Background())
	a.huma = newHuma(a)
	jobs, queues, orchestrations := jobRoutes{a}, queueRoutes{a}, orchestrationRoutes{a}
	jobs.routeJobs()
	jobs.routeInput()
	jobs.routeBulk()
	jobs.routeEvents()
	queues.routeQueues()
	queues.routeMessages()
	queues.routeTopics()
	a.routeWebhooks()
	a.routeDocuments()
	jobs.routeSetAside()
	a.routeReports()
	a.routeDeployments()
	orchestrations.routeOrchestrations()
	a.routeKeys()
	signInRoutes{a}.routeSignIns()
	a.routeTenants()
	a.routeAudit()
	a.routeHealth()
	liveRoutes{a}.routeLive()
	for _, s := range a.surfaces {
		mount(a, s)
	}
	a.publish()
	return a
}

// Drain ends event streams, long polls and idle connections, so that a graceful shutdown does not
// wait for them. Other requests continue.
func (a *API) Drain() {
	a.drain()
	a.connections.EndUnused()
}

// waiting counts a call as a waiting request of its tenant until leave. The returned context also
// ends when the API drains.
func (a *API) waiting(ctx context.Context, c *call) (waiting context.Context, leave func(), err error) {
	left, err := a.waiters.Enter(c.home)
	if err != nil {
		return nil, nil, err
	}
	c.waited = true
	waiting, cancel := a.untilDrain(ctx)
	return waiting, func() { cancel(); left() }, nil
}

// untilDrain returns a context that also ends when the API drains.
func (a *API) untilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.draining, cancel)
	return ctx, func() { stop(); cancel() }
}
