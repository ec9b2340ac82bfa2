package interop_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// keyFor makes a key of the tenant acme.
func keyFor(t *testing.T, database string, scopes ...forebay.Scope) string {
	t.Helper()
	return keyWithBudget(t, database, forebay.Budget{}, scopes...)
}

// keyWithBudget makes a key of the tenant acme that may spend so much.
func keyWithBudget(t *testing.T, database string, budget forebay.Budget, scopes ...forebay.Scope) string {
	t.Helper()
	keys, err := server.OpenKeys(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	made, err := keys.Create(t.Context(), "acme", scopes, nil, budget)
	if err := errors.Join(err, keys.Close()); err != nil {
		t.Fatal(err)
	}
	return made.Key
}

// run runs a server until the test ends.
func run(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	if o.Blob == "" && !strings.HasPrefix(o.Database, "sqlite:") { // its default is a folder of this one
		o.Blob = t.TempDir()
	}
	s, stop := servertest.Run(t, o)
	t.Cleanup(stop)
	return s
}
