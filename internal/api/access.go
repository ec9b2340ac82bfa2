package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
)

// anyOf are scopes of which a caller needs one. Without any, nobody needs a key.
type anyOf []forebay.Scope

// What routes about messages need stands for several scopes.
const (
	// toPeek is for looking at messages.
	toPeek forebay.Scope = "peek"
	// toDescribe is for looking at queues, topics, subscriptions and rules.
	toDescribe forebay.Scope = "describe"
)

// scopesOf returns the scopes that a route is open to. A route that only reads what operators or
// administrators see is open to viewers too. A route that changes anything is not.
func scopesOf(method string, scope forebay.Scope) anyOf {
	var scopes anyOf
	switch scope {
	case open:
		return nil
	case toPeek:
		return anyOf{forebay.ScopeRead, forebay.ScopeListen}
	case toDescribe:
		return anyOf{forebay.ScopeRead, forebay.ScopeManage}
	case forebay.ScopeSend:
		scopes = anyOf{forebay.ScopeSubmit, scope}
	case forebay.ScopeListen, forebay.ScopeManage:
		scopes = anyOf{forebay.ScopeOperate, scope}
	default:
		scopes = anyOf{scope}
	}
	if first := scopes[0]; method == http.MethodGet && (first == forebay.ScopeOperate || first == forebay.ScopeAdmin) {
		scopes = append(scopes, forebay.ScopeView)
	}
	return scopes
}

// entityOf returns the path of the queue, topic or subscription that a request is about, or "".
func entityOf(ctx huma.Context) string {
	if queue := ctx.Param("queue"); queue != "" {
		return queue
	}
	topic, subscription := ctx.Param("topic"), ctx.Param("subscription")
	if topic == "" || subscription == "" {
		return topic
	}
	return forebay.SubscriptionPath(topic, subscription)
}

// reaches refuses a caller whose key is bound to other entities. The entity "" is none: what is
// not about one is closed to a key that is bound to some.
func (c *call) reaches(entity string) error {
	switch {
	case c.caller.Reaches(entity):
		return nil
	case entity == "":
		return forebay.Errorf(forebay.CodeForbidden, "this key is bound to queues or topics, and this is not about one of them")
	}
	return forebay.Errorf(forebay.CodeForbidden, "this key is bound to other queues or topics")
}

// forwards refuses settings that forward messages to where the caller's key may not send.
func (c *call) forwards(targets ...string) error {
	for _, target := range targets {
		if target != "" && !c.caller.Reaches(target) {
			return forebay.Errorf(forebay.CodeForbidden, "this key is bound to other queues or topics than the ones to forward to")
		}
	}
	return nil
}

func (s anyOf) metBy(c forebay.Caller) bool { return slices.ContainsFunc(s, c.May) }

// String is how an error names the scopes.
func (s anyOf) String() string { return s.quoted(`"`) }

// documented is how the OpenAPI document names them.
func (s anyOf) documented() string { return s.quoted("`") }

func (s anyOf) quoted(mark string) string {
	quoted := make([]string, len(s))
	for i, scope := range s {
		quoted[i] = mark + string(scope) + mark
	}
	return strings.Join(quoted, " or ")
}

// documentTenant describes the header that names another tenant.
func documentTenant(op *huma.Operation) {
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: forebay.TenantHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "act in this tenant instead of the key's own, with the scope `admin`, or read in it, with the scope `view`",
	})
}

// away reports whether the request is about another tenant than that of its key.
func (c *call) away() bool { return c.caller.Tenant != c.home }

// mayLook checks that the caller may look at all tenants, if that is what he asks for.
func (c *call) mayLook(allTenants bool) error {
	if allTenants && !c.caller.May(forebay.ScopeView) {
		return forebay.Errorf(forebay.CodeForbidden, "all_tenants needs a key with the scope %s", anyOf{forebay.ScopeView, forebay.ScopeAdmin})
	}
	return nil
}

// visit moves the call into the tenant that its header names, if it names one. An administrator
// may do there what he may do at home. A viewer may read there, whatever else his key allows.
// Surfaces ignore the header, unless a page asks for it in this process.
func (c *call) visit(ctx context.Context) error {
	values := c.r.Header.Values(forebay.TenantHeader)
	_, page := actingAs(ctx)
	if len(values) == 0 || c.surface != nil && !page {
		return nil
	}
	name := values[0]
	if len(values) > 1 || !forebay.ValidName(name) {
		return forebay.Invalid(forebay.TenantHeader, "must be one name of a tenant")
	}
	if name == c.home {
		return nil
	}
	if !c.caller.May(forebay.ScopeView) {
		return forebay.Errorf(forebay.CodeForbidden, "another tenant needs a key with the scope %s", anyOf{forebay.ScopeView, forebay.ScopeAdmin})
	}
	if !c.caller.May(forebay.ScopeAdmin) {
		scopes := []forebay.Scope{forebay.ScopeView}
		if c.caller.May(forebay.ScopePayload) {
			scopes = append(scopes, forebay.ScopePayload)
		}
		c.caller.Scopes = scopes
	}
	// A budget of a key counts the jobs of its own tenant.
	if c.caller.Budgeted && c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return forebay.Errorf(forebay.CodeForbidden, "a key with a budget changes nothing in another tenant")
	}
	known := false
	if c.api.tenants != nil {
		var err error
		if known, err = c.api.tenants.Exists(ctx, name); err != nil {
			return err
		}
	}
	if !known {
		return &forebay.Error{Code: forebay.CodeNotFound, Field: forebay.TenantHeader, Message: "there is no such tenant"}
	}
	c.caller.Tenant = name
	return nil
}
