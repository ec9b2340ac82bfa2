package server

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/azurebus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/trigger"
)

// AzureServiceBus connects with namespaces of Azure Service Bus. The zero value has none.
type AzureServiceBus struct {
	Connections map[string]AzureConnection `koanf:"connections"` // by names of their own
	Sources     map[string]AzureSource     `koanf:"sources"`     // queues there that feed jobs here
	Sinks       map[string]AzureSink       `koanf:"sinks"`       // queues there that get events of jobs
}

// AzureConnection is a namespace. It has either a connection string or a namespace.
type AzureConnection struct {
	ConnectionString forebay.Secret `koanf:"connection_string"`
	// Namespace is NAME.servicebus.windows.net. Entra ID says who connects, by
	// DefaultAzureCredential: environment, workload identity, managed identity, Azure CLI.
	Namespace string `koanf:"namespace"`
	// Endpoint is host:port to connect to instead of the namespace's own, such as a private
	// one.
	Endpoint string `koanf:"endpoint"`
	// CAFile has certificates, in PEM, that sign the endpoint's; default: those of the machine.
	CAFile    string `koanf:"ca_file"`
	WebSocket bool   `koanf:"websocket"` // AMQP over a WebSocket, on port 443
}

// AzureSource is a queue or a subscription of Azure Service Bus whose messages become jobs.
type AzureSource struct {
	Connection string `koanf:"connection"` // default: the only one
	From       string `koanf:"from"`       // a queue, or TOPIC/subscriptions/NAME; default: the source's name
	Tenant     string `koanf:"tenant"`     // whose jobs they are; default "default"
	Task       string `koanf:"task"`       // default: each message's subject names its task
	Queue      string `koanf:"queue"`      // of the jobs; default: the task's
	// Sessions is how many sessions are received at the same time. It is 0, the default, for an
	// entity without sessions.
	Sessions int `koanf:"sessions"`
	Messages int `koanf:"messages"` // received at once, at most; default 50
}

// AzureSink is a queue or a topic of Azure Service Bus that gets the events of a tenant's jobs.
type AzureSink struct {
	Connection string `koanf:"connection"` // default: the only one
	To         string `koanf:"to"`         // a queue or a topic; default: the sink's name
	Tenant     string `koanf:"tenant"`     // whose events they are; default "default"
	// Events are types of events; default: all.
	Events []forebay.EventType `koanf:"events"`
	// Results has the message of a job that succeeded carry its result instead of its event.
	Results bool `koanf:"results"`
	// Sessions makes each job a session there. It is needed if the entity requires sessions or
	// is partitioned.
	Sessions bool `koanf:"sessions"`
}

const (
	maxAzureSessions = 64
	maxAzureMessages = 500
	maxCAFile        = 1 << 20
	// azureSink is how names of the sinks' subscriptions begin.
	azureSink = "azure-"
	// sinkDeliveries lets a process be killed this often while it has the same event.
	sinkDeliveries = forebay.MaxMaxDeliveryCount
)

func (a AzureServiceBus) withDefaults() AzureServiceBus {
	only := ""
	if len(a.Connections) == 1 {
		for only = range a.Connections {
		}
	}
	a.Sources, a.Sinks = maps.Clone(a.Sources), maps.Clone(a.Sinks)
	for name, s := range a.Sources {
		s.Connection, s.From, s.Tenant = or(s.Connection, only), or(s.From, name), or(s.Tenant, forebay.DefaultTenant)
		s.Messages = or(s.Messages, 50)
		a.Sources[name] = s
	}
	for name, s := range a.Sinks {
		s.Connection, s.To, s.Tenant = or(s.Connection, only), or(s.To, name), or(s.Tenant, forebay.DefaultTenant)
		a.Sinks[name] = s
	}
	return a
}

func (a AzureServiceBus) validate(o Options, known map[string]forebay.Task, bad func(field, format string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(a.Connections)) {
		a.Connections[name].validate("azure_service_bus.connections."+name, bad)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Sources)) {
		s, at := a.Sources[name], "azure_service_bus.sources."+name
		a.validateConnector(at, name, s.Connection, s.Tenant, bad)
		if !entity.ValidName(s.From) {
			bad(at+".from", "%.80q is neither the name of a queue nor TOPIC/subscriptions/NAME", s.From)
		}
		if _, ok := known[s.Task]; !ok && s.Task != "" {
			bad(at+".task", "there is no task %.80q", s.Task)
		}
		queue := o.queueOf(s, known)
		if q, ok := o.Queues[queue]; !ok || len(q.Tenants) > 0 && !slices.Contains(q.Tenants, s.Tenant) {
			bad(at+".queue", "tenant %.80s has no queue %.80q", s.Tenant, queue)
		}
		if s.Sessions < 0 || s.Sessions > maxAzureSessions {
			bad(at+".sessions", "goes from 0, for an entity without sessions, to %d", maxAzureSessions)
		}
		if s.Messages < 1 || s.Messages > maxAzureMessages {
			bad(at+".messages", "goes from 1 to %d", maxAzureMessages)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Sinks)) {
		s, at := a.Sinks[name], "azure_service_bus.sinks."+name
		a.validateConnector(at, name, s.Connection, s.Tenant, bad)
		if !entity.ValidSubscription(azureSink + name) {
			bad(at, "a sink's name has at most %d characters", forebay.MaxSubscriptionBytes-len(azureSink))
		}
		if !forebay.ValidEntityName(s.To) {
			bad(at+".to", "%.80q is not the name of a queue or a topic", s.To)
		}
		for i, kind := range s.Events {
			if !slices.Contains(sinkEvents(), kind) {
				bad(fmt.Sprintf("%s.events[%d]", at, i), "there is no event %.80q", kind)
			}
		}
	}
}

func sinkEvents() []forebay.EventType {
	all := slices.Concat(forebay.JobEventTypes, forebay.ObjectEventTypes)
	return append(all, forebay.EventBudgetWarning, forebay.EventBudgetExhausted)
}

func (a AzureServiceBus) validateConnector(at, name, connection, tenant string, bad func(field, format string, args ...any)) {
	if !forebay.ValidName(name) {
		bad(at, "%.80q is not a valid name: 1 to 64 letters, digits, '.', '_' or '-'", name)
	}
	if _, ok := a.Connections[connection]; !ok {
		bad(at+".connection", "there is no connection %.80q in azure_service_bus.connections", connection)
	}
	if !forebay.ValidName(tenant) {
		bad(at+".tenant", "%.80q is not a valid name", tenant)
	}
}

func (c AzureConnection) validate(at string, bad func(field, format string, args ...any)) {
	if (c.ConnectionString == "") == (c.Namespace == "") {
		bad(at, "needs either connection_string or namespace")
		return
	}
	if c.Namespace != "" && !hostName.MatchString(c.Namespace) {
		bad(at+".namespace", "must be a host name, such as NAME.servicebus.windows.net")
		return
	}
	if _, _, err := net.SplitHostPort(c.Endpoint); c.Endpoint != "" && (err != nil || !validEndpoint(c.Endpoint)) {
		bad(at+".endpoint", "%.80q is not host:port", c.Endpoint)
	}
	connection, err := c.connection()
	if err != nil {
		bad(at+".ca_file", "%s", err)
		return
	}
	if _, err := connection.Open(); err != nil {
		bad(at, "%s", err)
	}
}

// connection reads the file of certificates. Its error names no path.
func (c AzureConnection) connection() (azurebus.Connection, error) {
	connection := azurebus.Connection{ConnectionString: c.ConnectionString, Namespace: c.Namespace, Endpoint: c.Endpoint, WebSocket: c.WebSocket}
	if c.CAFile == "" {
		return connection, nil
	}
	info, err := os.Stat(c.CAFile)
	if err == nil && info.Size() > maxCAFile {
		return connection, fmt.Errorf("the file has more than %d bytes", maxCAFile)
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return connection, fmt.Errorf("the file cannot be read: %w", rootCause(err))
	}
	connection.CAs = x509.NewCertPool()
	if !connection.CAs.AppendCertsFromPEM(pem) {
		return connection, fmt.Errorf("the file has no certificate in PEM")
	}
	return connection, nil
}

// queueOf returns the queue of a source's jobs. It is the default one if messages name the
// task, whose own queue may be another.
func (o Options) queueOf(s AzureSource, known map[string]forebay.Task) string {
	return or(s.Queue, or(known[s.Task].Queue, forebay.DefaultQueue))
}

// connectors are the sources and sinks of the options, by name. The server is nil for a check.
func (o Options) connectors(s *Server, log *slog.Logger) (sources map[string]*azurebus.Source, sinks map[string]*azurebus.Sink, err error) {
	sources, sinks = map[string]*azurebus.Source{}, map[string]*azurebus.Sink{}
	connections := map[string]azurebus.Connection{}
	for name, c := range o.AzureServiceBus.Connections {
		if connections[name], err = c.connection(); err != nil {
			return nil, nil, forebay.Invalid("azure_service_bus.connections."+name+".ca_file", "%s", err)
		}
	}
	for name, in := range o.AzureServiceBus.Sources {
		opts := azurebus.SourceOptions{Name: name, Connection: connections[in.Connection], From: in.From, Sessions: in.Sessions, Messages: in.Messages, Logger: log}
		if s != nil {
			opts.Maker = &trigger.Maker{Jobs: s.jobs, Logger: s.log, Tenant: in.Tenant, Source: "azure/" + name, Task: in.Task, Queue: in.Queue}
			opts.Paused, opts.Observe = pausedFor(s, in), s.telemetry.AzureServiceBus(name, azurebus.Accepted, azurebus.DeadLettered, azurebus.Abandoned)
		}
		sources[name] = azurebus.NewSource(opts)
	}
	for name, out := range o.AzureServiceBus.Sinks {
		opts := azurebus.SinkOptions{Name: name, Connection: connections[out.Connection], Tenant: out.Tenant, To: out.To, Sessions: out.Sessions, Logger: log,
			From: forebay.SubscriptionPath(forebay.TopicJobEvents, azureSink+name)}
		if s != nil {
			opts.Bus, opts.Observe = s.bus, s.telemetry.AzureServiceBus(name, azurebus.Sent, azurebus.DeadLettered)
			if out.Results {
				opts.Results = s.jobs
			}
		}
		sinks[name] = azurebus.NewSink(opts)
	}
	return sources, sinks, nil
}

type runner interface{ Run(ctx context.Context) }

// azureConnectors returns what connects with Azure Service Bus.
func azureConnectors(s *Server) (list []runner) {
	sources, sinks, err := s.options.connectors(s, s.log)
	if err != nil { // the file was there when the options were validated
		s.log.Error("nothing connects with Azure Service Bus", slog.Any("error", err))
		return nil
	}
	for _, source := range sources {
		list = append(list, source)
	}
	for _, sink := range sinks {
		list = append(list, sink)
	}
	return list
}

// pauseMemory is how long it is remembered whether jobs are paused.
const pauseMemory = time.Second

// pausedFor reports whether the queue of a source's jobs, or its tenant, is paused. The
// function asks the database at most once a second.
func pausedFor(s *Server, in AzureSource) func(context.Context) (bool, error) {
	name := s.options.queueOf(in, s.deployments.called.Load().tasks)
	subject := in.Task == "" && in.Queue == "" // each message's task has its own queue
	var mu sync.Mutex
	var at time.Time
	var paused bool
	return func(ctx context.Context) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) < pauseMemory {
			return paused, nil
		}
		t, err := s.tenants.Get(ctx, in.Tenant)
		if err != nil && forebay.CodeOf(err) != forebay.CodeNotFound {
			return false, err
		}
		found := t.Paused
		if !subject && !found {
			no, err := s.store.Queues.EnsureQueue(ctx, name)
			if err != nil {
				return false, err
			}
			rows, err := s.store.Queues.QueueRows(ctx)
			if err != nil {
				return false, err
			}
			found = slices.ContainsFunc(rows, func(r queue.QueueRow) bool { return r.No == no && r.Paused })
		}
		at, paused = time.Now(), found
		return paused, nil
	}
}

// sinks creates the subscriptions of sinks, or brings them to what the options say.
func (d declaration) sinks(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(d.options.AzureServiceBus.Sinks)) {
		sink := d.options.AzureServiceBus.Sinks[name]
		_, err := d.bus.Topics.Get(ctx, sink.Tenant, forebay.TopicJobEvents)
		if forebay.CodeOf(err) == forebay.CodeNotFound {
			_, _, err = d.bus.Topics.Put(ctx, sink.Tenant, forebay.TopicJobEvents, forebay.TopicSettings{})
		}
		if err == nil {
			err = d.subscription(ctx, sink.Tenant, forebay.TopicJobEvents, azureSink+name, sink.settings())
		}
		if err != nil {
			return inOption("azure_service_bus.sinks."+name, err)
		}
	}
	return nil
}

// settings are those of the sink's subscription. All events belong to one session, so that one
// process at a time has them, in order.
func (s AzureSink) settings() forebay.SubscriptionSettings {
	rule := forebay.RuleSettings{SQLFilter: "1=1", SQLAction: "SET sys.SessionId = 'events'"}
	if len(s.Events) > 0 {
		var names []string
		for _, kind := range s.Events {
			names = append(names, "'"+string(kind)+"'")
		}
		rule.SQLFilter = "sys.Label IN (" + strings.Join(names, ", ") + ")"
	}
	return forebay.SubscriptionSettings{
		MessageQueueSettings: forebay.MessageQueueSettings{RequiresSession: new(true), LockSeconds: azurebus.SinkLock.Seconds(), MaxDeliveryCount: sinkDeliveries},
		Rules:                []forebay.NewRule{{Name: "events", RuleSettings: rule}},
	}
}

// CheckAzureServiceBus tries each connector of the options, which must be valid. It takes and
// sends nothing.
func CheckAzureServiceBus(ctx context.Context, opts Options) (checks []Check) {
	o := opts.WithDefaults()
	sources, sinks, err := o.connectors(nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return []Check{{"Azure Service Bus", false, err.Error()}}
	}
	check := func(what, name string, try func(context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		c := Check{"Azure " + what + " " + name, true, "reachable"}
		if err := try(ctx); err != nil {
			c.OK, c.Detail = false, err.Error()
		}
		checks = append(checks, c)
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		check("source", name, sources[name].Check)
	}
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		check("sink", name, sinks[name].Check)
	}
	return checks
}
