package atom_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/messaging"
	"github.com/forebayhq/forebay/internal/servicebus/atom"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
	"github.com/forebayhq/forebay/internal/stores"
)

// namespace is a server of the protocol with TLS, over a database of its own.
type namespace struct {
	*httptest.Server
	keys     *keys.Service
	messages *messaging.Service
	ca       string // a file with the certificate to trust
	signed   string // a token, once one was made
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	s, err := stores.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	n := &namespace{keys: keys.NewService(s.Keys, nil), messages: messaging.New(messaging.Options{Store: s.Bus})}
	verifier := auth.New(auth.Options{Keys: n.keys, Logger: slog.New(slog.DiscardHandler)})
	n.Server = httptest.NewTLSServer(atom.New(atom.Options{Entities: atom.Messaging(n.messages), Authorizer: atom.Verified(verifier, nil)}))
	t.Cleanup(func() {
		n.Close()
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	n.ca = filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: n.Certificate().Raw}
	if err := os.WriteFile(n.ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// connection makes a key and returns the connection string with it.
func (n *namespace) connection(t *testing.T, tenant string, scope forebay.Scope, entities ...string) string {
	t.Helper()
	key, err := n.keys.Create(t.Context(), tenant, []forebay.Scope{scope}, nil, forebay.Budget{}, "test", entities...)
	if err != nil {
		t.Fatal(err)
	}
	return "Endpoint=sb://" + strings.TrimPrefix(n.URL, "https://") + "/;SharedAccessKeyName=" + key.ID + ";SharedAccessKey=" + key.Key
}

// crowded makes the topic crowded, whose subscription sub has as many rules as it may.
func (n *namespace) crowded(t *testing.T) {
	t.Helper()
	rules := make([]forebay.NewRule, forebay.MaxRules)
	for i := range rules {
		rules[i] = forebay.NewRule{Name: fmt.Sprint("r", i), RuleSettings: forebay.RuleSettings{BooleanFilter: new(true)}}
	}
	if _, _, err := n.messages.Topics.Put(t.Context(), "acme", "crowded", forebay.TopicSettings{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.messages.Subscriptions.Put(t.Context(), "acme", "crowded", "sub", forebay.SubscriptionSettings{Rules: rules}); err != nil {
		t.Fatal(err)
	}
}

// client is Microsoft's administration client for Go.
func (n *namespace) client(t *testing.T, connection string) *admin.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(n.Certificate())
	transport := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := admin.NewClientFromConnectionString(connection, &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: transport, Retry: policy.RetryOptions{MaxRetries: -1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
