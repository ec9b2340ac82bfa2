package forebay

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Scope is something an API key allows.
type Scope string

const (
	ScopeSubmit  Scope = "submit"  // submit and cancel jobs; send messages
	ScopeRead    Scope = "read"    // read jobs, results, events and reports; peek at messages
	ScopeOperate Scope = "operate" // dead letters, redrive, purge; message queues, receive and settle
	ScopeView    Scope = "view"    // read, and see what an operator sees of every tenant, but no payloads of others; change nothing
	ScopePayload Scope = "payload" // open the inputs of jobs, and payloads of every tenant that may be viewed
	ScopeAdmin   Scope = "admin"   // all of these, and what is not one tenant's: pausing queues, deployments, keys of every tenant

	// These are the rights of Service Bus. A key may have them for some entities only.
	ScopeSend   Scope = "send"   // send messages
	ScopeListen Scope = "listen" // receive and settle messages, and peek at them
	ScopeManage Scope = "manage" // queues, topics, subscriptions and rules; send and listen
)

// Scopes lists every scope.
var Scopes = []Scope{ScopeSubmit, ScopeRead, ScopeOperate, ScopeView, ScopePayload, ScopeAdmin, ScopeSend, ScopeListen, ScopeManage}

// MessageScopes are the scopes about messages alone. A key with one of them can sign tokens of
// Service Bus, and only keys that have no others are bound to entities.
var MessageScopes = []Scope{ScopeSend, ScopeListen, ScopeManage}

// ForMessages reports whether s is one of [MessageScopes].
func (s Scope) ForMessages() bool { return slices.Contains(MessageScopes, s) }

// includedIn are the scopes that include another one, besides admin.
var includedIn = map[Scope][]Scope{
	ScopeRead:   {ScopeView},
	ScopeSend:   {ScopeSubmit, ScopeManage},
	ScopeListen: {ScopeManage},
}

// APIKey describes a key. The key itself is shown once, when it is created. Only its hash is
// stored.
type APIKey struct {
	ID     string  `json:"id"`
	Key    string  `json:"key,omitempty" doc:"only in the answer that creates it"`
	Tenant string  `json:"tenant"`
	Scopes []Scope `json:"scopes"`
	// Entities are the queues, topics and subscriptions that it is bound to. None: it is for all.
	Entities []string `json:"entities,omitempty" doc:"queues, topics and TOPIC/subscriptions/NAME that it is bound to, with what is below them; none: it is for all"`
	// SignsTokens says that clients of Service Bus can sign tokens (SAS) with it.
	SignsTokens bool       `json:"signs_tokens" doc:"clients of Service Bus can sign tokens (SAS) with it: it was made with send, listen or manage"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
	RevokedAt   *time.Time `json:"revoked_at"`
	// LastUsedAt is written once a minute at most.
	LastUsedAt *time.Time `json:"last_used_at" doc:"to the minute; null: never, as far as is known"`
	Budget     *Budget    `json:"budget,omitempty" doc:"what its jobs may use"`
	// BudgetUsage is what was used of the budget.
	BudgetUsage []BudgetUse `json:"budget_usage,omitempty" doc:"used and held of its budget in the current day and month, and when these end; only in lists"`
	Tagged
}

// Caller is who makes a request: a tenant and what it may do.
type Caller struct {
	KeyID    string // of the API key; PersonPrefix and a name: a person; "": neither
	Tenant   string
	Scopes   []Scope
	Budgeted bool // the key has a budget
	// Entities are what a key is bound to, see [Caller.Reaches]. None: all of the tenant's.
	Entities []string
	// ExpiresAt is when the key expires, by this process's clock; zero: it does not.
	ExpiresAt time.Time
}

// IsPerson reports whether an OpenID Connect provider vouches for the caller.
func (c Caller) IsPerson() bool { return strings.HasPrefix(c.KeyID, PersonPrefix) }

type budgetKey struct{}

// WithBudgetKey returns a context for what is submitted with an API key that has a budget.
func WithBudgetKey(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, budgetKey{}, id)
}

// BudgetKeyOf returns the id of the API key whose budget pays for what is submitted. "": none.
func BudgetKeyOf(ctx context.Context) string {
	id, _ := ctx.Value(budgetKey{}).(string)
	return id
}

// May reports whether the caller's scopes include the given one. Admin includes every scope, view
// includes read, submit includes send, and manage includes send and listen. Operate does what
// listen and manage do, except to send and to look; what needs one of these says so.
func (c Caller) May(s Scope) bool {
	return slices.Contains(c.Scopes, s) || slices.Contains(c.Scopes, ScopeAdmin) ||
		slices.ContainsFunc(includedIn[s], func(other Scope) bool { return slices.Contains(c.Scopes, other) })
}

// Reaches reports whether the caller's key is for the entity of that path: a queue, a topic, a
// subscription, or what is below one of them. The path "" is the namespace, which a key that is
// bound to entities does not reach.
func (c Caller) Reaches(path string) bool {
	return len(c.Entities) == 0 || slices.ContainsFunc(c.Entities, func(e string) bool { return e != "" && CoversEntity(e, path) })
}

// CoversEntity reports whether an entity is another one or above it, as the resource of a Service
// Bus token is. "orders" covers the topic orders with its subscriptions and subqueues. It also
// covers a queue orders/eu. "" covers all. Case does not matter: Service Bus finds names without
// it.
func CoversEntity(entity, path string) bool {
	n := len(entity)
	return n == 0 || len(path) >= n && strings.EqualFold(path[:n], entity) && (len(path) == n || path[n] == '/')
}

// TenantHeader is the header of a request that names the tenant to act in, or to read in, instead
// of the one of the key. It needs ScopeAdmin, or ScopeView to read.
const TenantHeader = "Forebay-Tenant"

// DefaultTenant is the tenant of a server without keys.
const DefaultTenant = "default"

// Valid reports whether s is a scope Forebay knows.
func (s Scope) Valid() bool { return slices.Contains(Scopes, s) }
