// Package keys makes, checks and revokes API keys. It stores the hash of each key's secret, its
// tenant, its scopes and when it was revoked.
package keys
