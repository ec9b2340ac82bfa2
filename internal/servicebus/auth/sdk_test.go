package auth

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/toolchain"
)

// audiences are those for which SDKs make tokens.
var audiences = []string{"sb://Localhost:5671/Orders", "amqps://bus.example.com/Orders/$management", "amqp://bus.example.com/Orders", "https://bus.example.com/Orders"}

func wantOrders(t *testing.T, k *Verifier, token, audience string) {
	t.Helper()
	grant, err := k.From(elsewhere).SAS(t.Context(), token, audience)
	if err != nil || !grant.May(forebay.ScopeSend, "orders") || grant.May(forebay.ScopeSend, "news") {
		t.Errorf("%s: %v; %+v", audience, err, grant)
	}
}

// Microsoft's own code makes the tokens, as it does for $cbs.
func TestTokensOfTheSDKs(t *testing.T) {
	k := newKeys(t)
	key := newKey(t, k, "acme", sendListen, "orders")
	v := newVerifier(k)
	source := filepath.Join("testdata", "sas")
	for what, program := range map[string]func(t *testing.T) *exec.Cmd{
		"javascript": func(t *testing.T) *exec.Cmd {
			modules := toolchain.NodeModules(t, source)
			c := exec.CommandContext(t.Context(), toolchain.NodeFor(t, modules), filepath.Join(source, "sas_token.mjs"))
			c.Env = append(os.Environ(), "MODULES="+modules)
			return c
		},
		"python": func(t *testing.T) *exec.Cmd {
			c := exec.CommandContext(t.Context(), "python3", filepath.Join(source, "sas_token.py"))
			c.Env = append(os.Environ(), "PYTHONPATH="+toolchain.PythonPackages(t, source))
			return c
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := program(t)
			c.Args = append(append(c.Args, key.ID, key.Key), audiences...)
			var problems bytes.Buffer
			c.Stderr = &problems
			lines, err := c.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, problems.Bytes())
			}
			seen := map[string]bool{}
			for line := range strings.Lines(string(lines)) {
				audience, token, _ := strings.Cut(strings.TrimSpace(line), "\t")
				wantOrders(t, v, token, audience)
				seen[audience] = true
			}
			if len(seen) != len(audiences) {
				t.Errorf("tokens for %v", seen)
			}
		})
	}
}

// sent keeps the header of a request and answers nothing.
type sent struct{ header http.Header }

var errNoAnswer = errors.New("no answer")

func (s *sent) Do(r *http.Request) (*http.Response, error) {
	s.header = r.Header
	return nil, errNoAnswer
}

// Go's SDK makes the same tokens for $cbs and for requests to manage entities.
func TestTokensOfGoSDK(t *testing.T) {
	k := newKeys(t)
	key := newKey(t, k, "acme", []forebay.Scope{forebay.ScopeManage}, "orders")
	requests := &sent{}
	client, err := admin.NewClientFromConnectionString("Endpoint=sb://Bus.example.com/;SharedAccessKeyName="+key.ID+";SharedAccessKey="+key.Key,
		&admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: requests, Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.GetQueue(t.Context(), "Orders", nil); err == nil {
		t.Fatal("it got an answer")
	}
	header := requests.header.Get("Authorization")
	grant, err := newVerifier(k).From(elsewhere).Header(t.Context(), header, "/Orders")
	if err != nil || !grant.May(forebay.ScopeManage, "orders") || grant.May(forebay.ScopeManage, "news") {
		t.Errorf("%v; %+v", err, grant)
	}
}
