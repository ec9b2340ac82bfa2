package dashboardtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// Running is a server with a dashboard.
type Running struct {
	*server.Server
	Database string
	URL      string
}

// Start runs a server until the test ends.
func Start(t testing.TB, database string, change ...func(*server.Options)) *Running {
	t.Helper()
	o := server.Options{Database: database, Listen: "127.0.0.1:0", Log: server.Log{Level: "error"}}
	if strings.HasPrefix(database, "postgres") { // else they are beside the database's file
		o.Blob = "file://" + t.TempDir()
	}
	for _, f := range change {
		f(&o)
	}
	s, stop := servertest.Run(t, o)
	t.Cleanup(stop)
	return &Running{s, database, "http://" + s.Addr(t.Context()).String()}
}

// Key makes a key of the tenant acme.
func (s *Running) Key(t testing.TB, scopes ...forebay.Scope) string {
	t.Helper()
	return s.KeyOf(t, "acme", scopes...)
}

// KeyOf makes a key of a tenant.
func (s *Running) KeyOf(t testing.TB, tenant string, scopes ...forebay.Scope) string {
	t.Helper()
	keys, err := server.OpenKeys(t.Context(), s.Database)
	if err != nil {
		t.Fatal(err)
	}
	made, err := keys.Create(t.Context(), tenant, scopes, nil, forebay.Budget{})
	if err := errors.Join(err, keys.Close()); err != nil {
		t.Fatal(err)
	}
	return made.Key
}

// client returns a client of the API.
func (s *Running) Client(t testing.TB, key string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{BaseURL: s.URL, Key: forebay.Secret(key)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// KeyID is the id of a tenant's only key.
func KeyID(t testing.TB, c *client.Client, tenant string) (id string) {
	t.Helper()
	keys, err := c.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.Tenant == tenant {
			return k.ID
		}
	}
	t.Fatalf("%s has no key", tenant)
	return ""
}
