// Package keys makes, checks and revokes API keys. It stores the hash of each key's secret, its
// tenant, its scopes and when it was revoked.
//
// # Keys that end
//
// keys.Service.Hold gives each request and call a context that ends with its key. A revocation is
// told to other processes by notification; a look at the database every half second, while
// anything is open, finds what was missed. An expiry is a timer.
//
// # Last use
//
// A request only notes in memory that its key was used. A minute at the earliest after the last
// time, one transaction writes what was noted since. It leaves a time in the database that is
// less than a minute older, so several processes write no more often than one. A process that is
// killed loses what it noted last.
package keys
