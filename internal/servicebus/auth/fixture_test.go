package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/keys"
	"github.com/forebayhq/forebay/internal/stores"
)

var (
	elsewhere = netip.MustParseAddr("192.0.2.7")
	loopback  = netip.MustParseAddr("127.0.0.1")
)

// newKeys returns the keys of a new SQLite database.
func newKeys(t *testing.T) *keys.Service {
	t.Helper()
	s, err := stores.Open(t.Context(), db.Options{Path: filepath.Join(t.TempDir(), "forebay.db"), Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.DB.Close() })
	return keys.NewService(s.Keys, nil)
}

func newKey(t *testing.T, k *keys.Service, tenant string, scopes []forebay.Scope, entities ...string) forebay.APIKey {
	t.Helper()
	key, err := k.Create(t.Context(), tenant, scopes, nil, forebay.Budget{}, "test", entities...)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newVerifier(k *keys.Service) *Verifier {
	return New(Options{Keys: k, Logger: slog.New(slog.DiscardHandler)})
}

// sign returns the field sig for a resource, which is escaped already, and an expiry.
func sign(key, resource, expiry string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(resource + "\n" + expiry))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// soon is an expiry an hour from now.
func soon() string { return fmt.Sprint(time.Now().Add(time.Hour).Unix()) }

// tokenOf returns a token as most clients write it.
func tokenOf(key forebay.APIKey, audience string) string {
	sr, se := url.QueryEscape(audience), soon()
	return "SharedAccessSignature sr=" + sr + "&sig=" + url.QueryEscape(sign(key.Key, sr, se)) + "&se=" + se + "&skn=" + key.ID
}

func wantRefused(t *testing.T, what string, err error, says string) {
	t.Helper()
	if forebay.CodeOf(err) != forebay.CodeUnauthorized || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v; want unauthorized, with %q", what, err, says)
	}
}
