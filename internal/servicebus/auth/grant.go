package auth

import (
	"slices"
	"time"

	"github.com/forebayhq/forebay"
)

// Grant is what a client may do with a token or a key.
type Grant struct {
	// Caller is who acts, and in which tenant. What a grant allows is narrower than its scopes:
	// ask May.
	Caller forebay.Caller
	// Path is the entity that the token is for, with what is below it; "": the namespace.
	Path string
	// Expires is when the token expires, by this process's clock; zero: it does not. The key may
	// end earlier, see Verifier.Hold.
	Expires time.Time

	allows []allowance
}

// allowance is scopes for entities. None: for all.
type allowance struct {
	scopes   []forebay.Scope
	entities []string
}

// May reports whether the grant allows a right (send, listen or manage) for the entity of that
// path. That is a queue, a topic, a subscription, or what is below one. "" is the namespace: what
// is not about one entity, such as the list of queues.
func (g Grant) May(right forebay.Scope, path string) bool {
	if !right.ForMessages() || !forebay.CoversEntity(g.Path, path) {
		return false
	}
	return slices.ContainsFunc(g.allows, func(a allowance) bool {
		c := forebay.Caller{Scopes: a.scopes, Entities: a.entities}
		// Operate is for queues and their messages, and does not send.
		return (c.May(right) || right != forebay.ScopeSend && c.May(forebay.ScopeOperate)) && c.Reaches(path)
	})
}

// ofKey returns the grant of an API key, or of a server without keys.
func ofKey(caller forebay.Caller, path string) Grant {
	return Grant{Caller: caller, Path: path, allows: []allowance{{caller.Scopes, caller.Entities}}}
}
