// Package operate has the pages for operators of models and tenants: deployments, usage, retries,
// tenants and their budgets, API keys, and the audit log.
package operate
