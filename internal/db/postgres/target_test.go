//go:build unix

package postgres

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/jackc/pgx/v5/pgconn"
)

// What a role or a database is set to by others does not change how Forebay waits.
func TestSettingsOfOthers(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	pg, err := pgconn.Connect(t.Context(), address)
	mustDo(t, err)
	defer pg.Close(context.WithoutCancel(t.Context()))
	_, err = pg.Exec(t.Context(), `DO $$DECLARE name text; BEGIN
  FOR name IN SELECT s.name FROM pg_settings s WHERE s.name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout') LOOP
    EXECUTE format('ALTER DATABASE %I SET %I = %L', current_database(), name, '1234s');
  END LOOP; END$$`).ReadAll()
	mustDo(t, err)
	c, err := ConnectURL(t.Context(), address)
	mustDo(t, err)
	defer c.Close()
	found := map[string]string{}
	mustDo(t, driver.Conn{Driver: c}.Prep(`SELECT CAST(name AS text), setting FROM pg_settings WHERE name LIKE '%\_timeout'`).Each(func(r driver.Row) error {
		found[r.Text(0)] = r.Text(1)
		return nil
	}))
	for name, want := range map[string]string{"statement_timeout": "20000", "lock_timeout": "0", "transaction_timeout": "0", "idle_session_timeout": "0"} {
		if value, known := found[name]; known && value != want {
			t.Errorf("%s is %s, want %s", name, value, want)
		}
	}
}

// Where triggers are off for the user a start is refused.
func TestTriggersThatAreOff(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	pg, err := pgconn.Connect(t.Context(), address)
	mustDo(t, err)
	defer pg.Close(context.WithoutCancel(t.Context()))
	_, err = pg.Exec(t.Context(), `DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET session_replication_role = replica', current_database()); END$$`).ReadAll()
	mustDo(t, err)
	c, err := ConnectURL(t.Context(), address)
	mustDo(t, err)
	defer c.Close()
	if err := c.PrepareDatabase(t.Context(), false); forebay.CodeOf(err) != forebay.CodeDatabaseUnusable || !strings.Contains(err.Error(), "session_replication_role") {
		t.Errorf("%v", err)
	}
}

// Nor does it change how statements are planned, which are looked up by indexes.
func TestPlannerSettingsOfOthers(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	pg, err := pgconn.Connect(t.Context(), address)
	mustDo(t, err)
	defer pg.Close(context.WithoutCancel(t.Context()))
	_, err = pg.Exec(t.Context(), `DO $$DECLARE s record; BEGIN
  FOR s IN SELECT name, vartype, setting FROM pg_settings WHERE name LIKE 'enable\_%' OR name IN ('geqo', 'geqo_threshold', 'from_collapse_limit', 'join_collapse_limit') LOOP
    EXECUTE format('ALTER DATABASE %I SET %I = %L', current_database(), s.name,
      CASE WHEN s.vartype <> 'bool' THEN CASE s.name WHEN 'geqo_threshold' THEN '2' ELSE '1' END WHEN s.setting = 'on' THEN 'off' ELSE 'on' END);
  END LOOP; END$$`).ReadAll()
	mustDo(t, err)
	c, err := ConnectURL(t.Context(), address)
	mustDo(t, err)
	defer c.Close()
	mustDo(t, c.PrepareDatabase(t.Context(), false))
	for name, want := range map[string]string{"geqo": "off", "from_collapse_limit": "8", "join_collapse_limit": "8"} {
		if _, err := (driver.Conn{Driver: c}).Prep("SELECT current_setting(?)").Text(name).One(func(r driver.Row) {
			if value := r.Text(0); value != want {
				t.Errorf("%s is %s", name, value)
			}
		}); err != nil {
			t.Error(err)
		}
	}
	for sql, step := range map[string]string{
		"SELECT seq FROM jobs WHERE seq = $1":              "Index Only Scan using jobs_pkey",
		"SELECT task FROM jobs WHERE seq = $1":             "Index Scan using jobs_pkey",
		"SELECT DISTINCT n FROM unnest($1::bigint[]) x(n)": "HashAggregate",
		"SELECT 1 FROM bodies a JOIN bodies b USING (seq) JOIN bodies c USING (seq) JOIN bodies d USING (seq), jobs j WHERE j.seq = $1 AND d.seq = j.seq": "Nested Loop",
	} {
		plan, err := c.Plan(t.Context(), sql)
		mustDo(t, err)
		if text := strings.Join(plan, "\n"); !strings.Contains(text, step) || strings.Contains(text, "Disabled: true") || strings.Contains(text, "Seq Scan") {
			t.Errorf("%s:\n%s", sql, text)
		}
	}
}

// tlsServer is a server with TLS and a role that connects to it.
type tlsServer struct {
	admin     *pgconn.PgConn
	address   *url.URL
	authority string // file of the certificate that is trusted
}

func startTLS(t *testing.T) *tlsServer {
	t.Helper()
	database := pgtest.New(t, nil).Database(t)
	admin, err := pgconn.Connect(t.Context(), database)
	mustDo(t, err)
	t.Cleanup(func() { admin.Close(context.WithoutCancel(t.Context())) })
	s := &tlsServer{admin: admin, authority: filepath.Join(t.TempDir(), "authority.pem")}
	s.address, err = url.Parse(database)
	mustDo(t, err)
	s.address.User = url.User("app")
	s.address.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {s.authority}}.Encode()
	s.do(t, "CREATE ROLE app LOGIN")
	s.renew(t)
	return s
}

func (s *tlsServer) do(t *testing.T, sql string) {
	t.Helper()
	_, err := s.admin.Exec(t.Context(), sql).ReadAll()
	mustDo(t, err)
}

// renew gives the server a new certificate, which is its own authority. The server's account must
// own the files.
func (s *tlsServer) renew(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	mustDo(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	mustDo(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	mustDo(t, err)
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	private = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	mustDo(t, os.WriteFile(s.authority, certificate, 0o600))
	for file, content := range map[string][]byte{"server.crt": certificate, "server.key": private} {
		s.do(t, fmt.Sprintf("COPY (SELECT '%s') TO PROGRAM 'umask 077; base64 -d > %s'", base64.StdEncoding.EncodeToString(content), file))
	}
	s.do(t, "ALTER SYSTEM SET ssl = on")
	s.do(t, "SELECT pg_reload_conf()")
}

// connected tries until the server has taken in its new configuration.
func (s *tlsServer) connected(t *testing.T, try func() error) {
	t.Helper()
	for start := time.Now(); ; {
		err := try()
		if err == nil {
			return
		}
		if text := err.Error(); time.Since(start) > time.Minute || !strings.Contains(text, "certificate") && !strings.Contains(text, "TLS") {
			t.Fatal(err)
		}
	}
}

// A token of Microsoft Entra ID is asked for with each connection, and what the server shows is
// compared with the authority that is in the file then.
func TestTokensAndCertificatesThatChange(t *testing.T) {
	var token atomic.Pointer[string]
	identity := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if resource := r.URL.Query().Get("resource"); resource != "https://ossrdbms-aad.database.windows.net" {
			t.Errorf("a token for %q was asked for", resource)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"expires_on":"%d","token_type":"Bearer"}`, *token.Load(), time.Now().Unix()+1)
	}))
	defer identity.Close()
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
	t.Setenv("IDENTITY_ENDPOINT", identity.URL) // as in Azure's App Service
	t.Setenv("IDENTITY_HEADER", "secret")
	s := startTLS(t)
	issue := func(value string) {
		token.Store(&value)
		s.do(t, "ALTER ROLE app PASSWORD '"+value+"'")
	}
	issue("first")
	query := s.address.Query()
	query.Set("entra_id", "true")
	s.address.RawQuery = query.Encode()
	var c *Conn
	s.connected(t, func() (err error) {
		c, err = ConnectURL(t.Context(), s.address.String())
		return err
	})
	defer func() { c.Close() }()
	mustDo(t, c.Present(SharedPresence)) // as servers do, which make lost connections anew
	issue("second")
	s.renew(t)
	s.do(t, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'app'")
	s.connected(t, func() error {
		c.retry = time.Time{} // it need not wait
		_, err := c.Begin(driver.BeginOptions{})
		return err
	})
	mustDo(t, c.Rollback())

	query.Set("sslmode", "prefer")
	s.address.RawQuery = query.Encode()
	if _, err := ConnectURL(t.Context(), s.address.String()); err == nil || !strings.Contains(err.Error(), "must stay secret") {
		t.Errorf("a token for whoever listens: %v", err)
	}
}
