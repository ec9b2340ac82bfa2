package servicebus

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
	"github.com/forebayhq/forebay/internal/turns"
)

// rightAny is one of the rights. Links to a management node need no certain one.
const rightAny forebay.Scope = ""

// claims are Service Bus's names of rights.
var claims = map[forebay.Scope]string{rightAny: "Send, Listen or Manage", forebay.ScopeSend: "Send", forebay.ScopeListen: "Listen", forebay.ScopeManage: "Manage"}

// grant is what a token allows, until it is released or its key ends.
type grant struct {
	auth.Grant
	held    context.Context
	release func()
}

func (g *grant) tenant() string { return g.Caller.Tenant }

// acting returns a context for what is done under the grant: who acts, for the audit log, and for
// whom is computed.
func (g *grant) acting(ctx context.Context) context.Context {
	actor := g.Caller.KeyID
	if actor == "" {
		actor = forebay.LocalActor
	}
	return turns.With(forebay.WithActor(ctx, actor), g.tenant())
}

func (g *grant) may(right forebay.Scope, path string) bool {
	if g.held.Err() != nil {
		return false
	}
	if right == rightAny {
		return g.May(forebay.ScopeSend, path) || g.May(forebay.ScopeListen, path) || g.May(forebay.ScopeManage, path)
	}
	return g.May(right, path)
}

type peerKey struct{}

// plain checks the name and the key of SASL's PLAIN.
func plain(ctx context.Context, name, key string) (any, error) {
	peer, ok := ctx.Value(peerKey{}).(auth.Peer)
	if !ok {
		return nil, errors.New("the connection has no address")
	}
	g, err := peer.Plain(ctx, name, key)
	if err != nil && forebay.CodeOf(err) != forebay.CodeUnauthorized {
		err = errors.Join(err, amqp.ErrUnavailable)
	}
	return g, err
}

// checkToken returns what a token allows. The SDK for Python calls all its tokens JSON Web Tokens.
func (c *client) checkToken(ctx context.Context, kind, token, audience string) (g auth.Grant, err error) {
	if kind == typeJWT && !auth.IsSAS(token) {
		return c.peer.JWT(ctx, token)
	}
	return c.peer.SAS(ctx, token, audience)
}

// guard calls ended once no token of the connection allows what a link does any more. Clients put
// new tokens before old ones expire.
func (c *client) guard(ctx context.Context, g *grant, right forebay.Scope, path string, ended func(*failure)) {
	w := &watch{client: c, tenant: g.tenant(), right: right, path: path, ended: ended}
	w.on(g)
	context.AfterFunc(ctx, w.stop)
}

// watch is a link that lives as long as tokens of its connection allow what it does.
type watch struct {
	*client
	tenant string
	right  forebay.Scope
	path   string
	ended  func(*failure)

	mu      sync.Mutex
	over    bool        // the link has ended
	unwatch func() bool // of the token that it has now
}

// on has the link depend on a token.
func (w *watch) on(g *grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.unwatch = context.AfterFunc(g.held, w.renew)
	}
}

// renew looks for another token, as the one that the link had is no longer in force.
func (w *watch) renew() {
	next, err := w.allowed(w.right, w.path, w.tenant)
	if err == nil {
		w.on(next)
		return
	}
	w.mu.Lock()
	over := w.over
	w.mu.Unlock()
	if !over {
		w.ended(w.unauthorized(w.right, w.path))
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.unwatch()
}

// allowed returns a grant of the connection that allows an act on an entity of a tenant.
func (c *client) allowed(right forebay.Scope, path, tenant string) (*grant, error) {
	g, err := c.grantFor(right, path)
	if err == nil && g.tenant() != tenant {
		return nil, c.unauthorized(right, path)
	}
	return g, err
}

// unauthorized refuses an act without a token that allows it. Some clients choose a SASL mechanism
// that takes no key, although they have been given one: Qpid Proton takes EXTERNAL.
func (c *client) unauthorized(right forebay.Scope, path string) *failure {
	f := fail(conditionUnauthorized, 401, "Unauthorized access. '%s' claim(s) are required to perform this operation. Resource: 'sb://%s/%s'.", claims[right], c.host(), path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.grants) == 0 {
		f.text += " The connection has brought no token, and no key by SASL PLAIN."
	}
	return f
}

// addressOf is the address of a client, the zero one if it has none.
func addressOf(remote net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr()
}
