package server

import (
	"maps"
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/trigger"
)

// Intake is a queue of plain messages that become jobs. The queue need not exist yet.
type Intake struct {
	Tenant string `koanf:"tenant"` // whose messages and jobs they are; default "default"
	// From is the queue of messages, or TOPIC/subscriptions/NAME. The default is the name of the
	// intake.
	From  string `koanf:"from"`
	Task  string `koanf:"task"`  // default: each message's subject names its task
	Queue string `koanf:"queue"` // of the jobs; default: the task's
}

func (o Options) validateIntake(known map[string]forebay.Task, bad func(field, format string, args ...any)) {
	sources := map[[2]string]string{}
	for _, name := range slices.Sorted(maps.Keys(o.Intake)) {
		in, at := o.Intake[name], "intake."+name
		if !forebay.ValidName(in.Tenant) {
			bad(at+".tenant", "%.80q is not a valid name", in.Tenant)
		}
		if !entity.ValidName(in.From) {
			bad(at+".from", "%.80q is neither the name of a queue of messages nor TOPIC/subscriptions/NAME", in.From)
		}
		if other, taken := sources[[2]string{in.Tenant, in.From}]; taken {
			bad(at+".from", "intake %s takes the messages of %q already", other, in.From)
		}
		sources[[2]string{in.Tenant, in.From}] = name
		if _, ok := known[in.Task]; !ok && in.Task != "" {
			bad(at+".task", "there is no task %.80q", in.Task)
		}
		queue := or(in.Queue, or(known[in.Task].Queue, forebay.DefaultQueue))
		if q, ok := o.Queues[queue]; !ok || len(q.Tenants) > 0 && !slices.Contains(q.Tenants, in.Tenant) {
			bad(at+".queue", "tenant %.80s has no queue %.80q", in.Tenant, queue)
		}
		if _, ok := o.Queues[in.From]; ok {
			bad(at+".from", "queue %q is for jobs", in.From)
		}
	}
}

// triggers returns the triggers that the configuration declares as intakes.
func (s *Server) triggers() (list []*trigger.Trigger) {
	for _, in := range s.options.Intake {
		list = append(list, trigger.New(trigger.Options{
			Bus: s.bus, Jobs: s.jobs, Logger: s.log, Tenant: in.Tenant, From: in.From, Task: in.Task, Queue: in.Queue,
		}))
	}
	return list
}
