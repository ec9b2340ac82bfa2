// Package flows has the pages about durable orchestrations and declared workflows.
package flows
