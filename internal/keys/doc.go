// Package keys stores API keys: the hash of each secret, its tenant and its scopes, and when it was revoked.
package keys
