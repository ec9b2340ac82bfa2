// Package atom serves the management protocol of Azure Service Bus: queues, topics, subscriptions
// and rules as ATOM entries over HTTP. The administration clients of Microsoft's SDKs speak it
// (REST API reference, "Service Bus management"; query parameter api-version 2017-04 to 2024-05).
//
// A PUT without If-Match creates an entity, and one with If-Match changes it. GET reads one entity
// or a page of a list. The bodies are XML. A [Handler] reads them with limits and translates them
// into Forebay's own settings. It keeps what Forebay has no use for as attributes, so that a
// client reads back what it wrote.
package atom

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
)

// Kind is the kind of an entity.
type Kind int

// The kinds.
const (
	Queue Kind = iota
	Topic
	Subscription
)

// String is what Service Bus calls the kind in its errors.
func (k Kind) String() string { return [...]string{"Queue", "Topic", "Subscription"}[k] }

// Name names an entity.
type Name struct {
	Kind  Kind
	Topic string // of a subscription
	Name  string
}

// Path is how the entity is addressed.
func (n Name) Path() string {
	if n.Kind == Subscription {
		return forebay.SubscriptionPath(n.Topic, n.Name)
	}
	return n.Name
}

// Entity is a queue, a topic or a subscription as stored. A topic uses the fields of MessageQueue
// that topics have.
type Entity struct {
	Kind Kind
	forebay.Subscription
	Attributes string // JSON, as Put got it; "": none

	// Only topics have these. The filters are those of all subscriptions.
	Subscriptions                  int64
	SQLFilters, CorrelationFilters int64
}

// Named returns the entity's name.
func (e *Entity) Named() Name { return Name{e.Kind, e.Topic, e.Name} }

// Change creates an entity or changes one. Topics use the settings that topics have.
type Change struct {
	Name
	Settings   forebay.SubscriptionSettings
	Attributes string
	Update     bool // the entity must exist; else it must not
}

// Entities is what the handler asks about a tenant's queues, topics and subscriptions. Names are
// exact but for those that Find gets. Errors are *forebay.Error values.
type Entities interface {
	// Find returns the queue or topic of that name, or the subscription of that path, whatever the
	// case of its letters. An exact name comes first.
	Find(ctx context.Context, tenant, path string) (Entity, error)
	// List returns entities by name, at most limit of them, without the first skip.
	List(ctx context.Context, tenant string, kind Kind, topic string, skip, limit int) ([]Entity, error)
	// Put returns ErrExists if the entity exists, or the error of Find if it does not.
	Put(ctx context.Context, tenant string, c Change) (Entity, error)
	Delete(ctx context.Context, tenant string, name Name) error
	// Rules returns all rules of a subscription by name.
	Rules(ctx context.Context, tenant string, subscription Name) ([]forebay.Rule, error)
	// PutRule creates a rule or, with update, changes one. Errors are like those of Put.
	PutRule(ctx context.Context, tenant string, subscription Name, rule forebay.NewRule, update bool) (forebay.Rule, error)
	DeleteRule(ctx context.Context, tenant string, subscription Name, rule string) error
}

// ErrExists is the error of an [Entities.Put] that finds the name taken.
var ErrExists = &forebay.Error{Code: forebay.CodeConflict, Field: "name", Message: "the name is taken"}

// Authorizer checks tokens. Package auth has the one that servers use.
type Authorizer interface {
	// Authorize checks the text of a header, "" if there is none, which is used for the resource of
	// that path. Errors are *forebay.Error values.
	Authorize(r *http.Request, header, path string) (auth.Grant, error)
	// Hold returns a context for the request that ends with the key.
	Hold(ctx context.Context, g auth.Grant) (held context.Context, release func())
}

// Options are the settings of a Handler.
type Options struct {
	Entities   Entities
	Authorizer Authorizer
	// MaxMessageBytes is the server's limit on one message, which entities without one report.
	MaxMessageBytes int64
	Logger          *slog.Logger
	Since           time.Time // when the namespace was created, as far as is known
}

// Handler serves the protocol. It is safe for concurrent use.
type Handler struct{ Options }

// New returns a handler.
func New(opts Options) *Handler {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.MaxMessageBytes <= 0 {
		opts.MaxMessageBytes = forebay.DefaultMaxMessageBytes
	}
	if opts.Since.IsZero() {
		opts.Since = time.Now()
	}
	return &Handler{opts}
}
