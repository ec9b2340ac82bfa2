// Package schema holds the tables as one script for both databases, and the scripts that bring
// older ones up to date.
package schema
