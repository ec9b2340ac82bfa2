// Package jobs has the pages about jobs: the list, one job, what was set aside, retries, sessions.
package jobs
