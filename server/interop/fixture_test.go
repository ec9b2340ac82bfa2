package interop_test

import (
	"errors"
	"testing"

	"github.com/forebayhq/forebay"
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
