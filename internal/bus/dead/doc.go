// Package dead reads dead-letter subqueues of plain messages for operators: which messages they
// select, and how many there are for which reason. It changes nothing. No read looks at more than
// a bounded number of messages.
package dead
