package servicebus

import (
	"context"

	"github.com/forebayhq/forebay/internal/amqp"
)

// The types of tokens on the node $cbs.
const (
	typeSAS = "servicebus.windows.net:sastoken"
	typeJWT = "jwt"
)

const (
	// maxTokenBytes bounds a token. Those of Entra have a few kilobytes.
	maxTokenBytes = 16 << 10
	// maxTokenRequestBytes bounds the request that brings one, with its audience.
	maxTokenRequestBytes = 2 * maxTokenBytes
)

// acceptTokens accepts a link to $cbs. Nobody has a token before it.
func (c *client) acceptTokens(l *amqp.Incoming) {
	c.acceptRequester(l, node{cbs: true}, "status-code", "status-description", maxTokenRequestBytes, putToken)
}

// putToken checks a token and records what it allows.
func putToken(ctx context.Context, r *request) answer {
	audience, _ := textOf(r.property("name"))
	kind, _ := textOf(r.property("type"))
	operation, _ := textOf(r.property("operation"))
	token, ok := r.value.(string)
	switch {
	case operation != "put-token":
		return r.failed(badArgument("The operation must be put-token."))
	case !ok || token == "" || len(token) > maxTokenBytes:
		return r.failed(badArgument("The body must be a token, a string."))
	case kind != typeSAS && kind != typeJWT:
		return r.failed(badArgument("The type of the token must be %s or %s.", typeSAS, typeJWT))
	}
	g, err := r.checkToken(ctx, kind, token, audience)
	if err == nil {
		err = r.allow(audience, g)
	}
	if err != nil {
		return r.failed(err)
	}
	return answer{status: 202, description: "Accepted"}
}
