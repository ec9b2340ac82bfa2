// Package signin knows who has signed in to the dashboard. An API key is exchanged for a
// session: a random value in a cookie, of which only the hash is stored. A session has no
// rights of its own. It names its key, and ends with it. A session that an OpenID Connect
// provider vouches for names a person instead, with a tenant and scopes.
package signin
