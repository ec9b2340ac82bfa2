// Package keys makes, checks and revokes API keys. It stores the hash of each key's secret, its
// tenant, its scopes and when it was revoked.
//
// # Keys that end
//
// keys.Service.Hold gives each request and call a context that ends with its key. A revocation is
// told to other processes by notification; a look at the database every half second, while
// anything is open, finds what was missed. An expiry is a timer.
package keys
