package server

import (
	"slices"
	"strings"

	"github.com/forebayhq/forebay/internal/dispatch"
)

// Values of Options.Role. Each process also maintains the database (expiry, scheduled messages,
// retention). The first one that comes does it.
const (
	RoleAll         = "all"          // HTTP and what a worker does
	RoleAPI         = "api"          // HTTP, but carries no jobs out
	RoleWorker      = "worker"       // all jobs, intake and webhooks; no HTTP
	RoleRetryWorker = "retry-worker" // the jobs of the retry lanes; nothing else
)

var roles = []string{RoleAll, RoleAPI, RoleWorker, RoleRetryWorker}

func (o Options) validateRole(bad func(field, format string, args ...any)) {
	if !slices.Contains(roles, o.Role) {
		bad("role", "%.40q is none of %s", o.Role, strings.Join(roles, ", "))
		return
	}
	database, err := databaseOf(o.Database)
	if err != nil || database.URL != "" || o.works() {
		return
	}
	bad("role", "%s needs PostgreSQL: a SQLite file serves one process, so nobody would carry %s", o.Role,
		map[string]string{RoleAPI: "the jobs out", RoleRetryWorker: "jobs out for the first time"}[o.Role])
}

func (o Options) servesHTTP() bool { return o.Role == RoleAll || o.Role == RoleAPI }

// works reports whether the process does work without requests.
func (o Options) works() bool { return o.Role == RoleAll || o.Role == RoleWorker }

// answers says which requests the process answers, for db.Options. Processes that answer HTTP
// share rate limits with each other. Workers that answer only the Durable Task protocol do so too.
func (o Options) answers() string {
	switch {
	case o.servesHTTP():
		return "http"
	case o.works() && o.Orchestrations.GRPC.Address != "":
		return "grpc"
	}
	return ""
}

func (o Options) lanes() dispatch.Lanes {
	switch o.Role {
	case RoleAPI:
		return dispatch.NoLanes
	case RoleRetryWorker:
		return dispatch.RetryLanes
	}
	return dispatch.AllLanes
}
