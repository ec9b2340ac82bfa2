// Package stores opens a database with all domains.
package stores
