package servicebus_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// certificate makes a certificate for this machine, and returns who trusts it.
func certificate(t *testing.T) (server.TLS, *tls.Config) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, private, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, der, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, key, err)
	files := server.TLS{CertFile: filepath.Join(t.TempDir(), "cert.pem"), KeyFile: filepath.Join(t.TempDir(), "key.pem")}
	for file, block := range map[string]*pem.Block{files.CertFile: {Type: "CERTIFICATE", Bytes: der}, files.KeyFile: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	must(t, parsed, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	// The SDK for Go takes a port for a part of the name.
	return files, &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

// One port with TLS takes AMQP, AMQP over WebSockets and the management of entities. The id and
// the text of an API key make a connection string, and its scopes are rights.
func TestServiceBusGoEncrypted(t *testing.T) {
	t.Parallel()
	files, trust := certificate(t)
	database := "sqlite:" + dbtest.SQLite(t)
	keys, err := server.OpenKeys(t.Context(), database)
	must(t, keys, err)
	owner, err := keys.Create(t.Context(), "acme", []forebay.Scope{forebay.ScopeSend, forebay.ScopeListen, forebay.ScopeManage}, nil, forebay.Budget{})
	must(t, owner, err)
	sends, err := keys.Create(t.Context(), "acme", []forebay.Scope{forebay.ScopeSend}, nil, forebay.Budget{})
	must(t, sends, err)
	if err := keys.Close(); err != nil {
		t.Fatal(err)
	}
	s := servertest.UntilEnd(t, server.Options{Database: database, Listen: "127.0.0.1:0", TLS: files, ShutdownTimeout: time.Second, ServiceBus: server.ServiceBus{Listen: "127.0.0.1:0"}})
	address, _ := s.ServiceBusAddr(t.Context())
	connection := func(key forebay.APIKey) string {
		return "Endpoint=sb://" + address.String() + ";SharedAccessKeyName=" + key.ID + ";SharedAccessKey=" + key.Key
	}
	ctx := within(t)

	web := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
	entities, err := admin.NewClientFromConnectionString(connection(owner), &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: web}})
	must(t, entities, err)
	if _, err := entities.CreateQueue(ctx, "orders", nil); err != nil {
		t.Fatal(err)
	}

	dial := func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		c, _, err := websocket.Dial(ctx, args.Host, &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: web})
		if err != nil {
			return nil, err
		}
		return websocket.NetConn(context.Background(), c, websocket.MessageBinary), nil
	}
	for what, o := range map[string]azservicebus.ClientOptions{"amqps": {TLSConfig: trust}, "websocket": {NewWebSocketConn: dial}} {
		t.Run(what, func(t *testing.T) {
			o.RetryOptions.MaxRetries = -1
			c, err := azservicebus.NewClientFromConnectionString(connection(owner), &o)
			must(t, c, err)
			defer c.Close(context.Background())
			b := goBus{Client: c, t: t}
			b.send("orders", text(what))
			r := b.receiver("orders", nil)
			m := b.receive(r, 1)[0]
			if string(m.Body) != what {
				t.Errorf("received %q", m.Body)
			}
			if err := r.CompleteMessage(ctx, m, nil); err != nil {
				t.Error(err)
			}
		})
	}

	// Other clients of AMQP have their key in SASL.
	conn, err := amqp.Dial(ctx, "amqps://"+address.String(), &amqp.ConnOptions{TLSConfig: trust, SASLType: amqp.SASLTypePlain(sends.ID, sends.Key)})
	must(t, conn, err)
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	must(t, session, err)
	producer, err := session.NewSender(ctx, "orders", nil)
	must(t, producer, err)
	if err := producer.Send(ctx, amqp.NewMessage([]byte("plain")), nil); err != nil {
		t.Error(err)
	}
	if _, err := session.NewReceiver(ctx, "orders", nil); condition(err) != amqp.ErrCondUnauthorizedAccess {
		t.Errorf("a receiver for a key that only sends: %v", err)
	}
	if _, err := amqp.Dial(ctx, "amqps://"+address.String(), &amqp.ConnOptions{TLSConfig: trust, SASLType: amqp.SASLTypePlain(sends.ID, owner.Key)}); err == nil {
		t.Error("another key's text was taken")
	}

	c, err := azservicebus.NewClientFromConnectionString(connection(sends), &azservicebus.ClientOptions{TLSConfig: trust, RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	must(t, c, err)
	defer c.Close(context.Background())
	b := goBus{Client: c, t: t}
	b.send("orders", text("x"))
	if _, err := b.receiver("orders", nil).ReceiveMessages(ctx, 1, nil); condition(err) != amqp.ErrCondUnauthorizedAccess && code(err) != azservicebus.CodeUnauthorizedAccess {
		t.Errorf("received with a key that only sends: %v", err)
	}
	wrong := sends
	wrong.Key += "x"
	c, err = azservicebus.NewClientFromConnectionString(connection(wrong), &azservicebus.ClientOptions{TLSConfig: trust, RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	must(t, c, err)
	defer c.Close(context.Background())
	sender, err := c.NewSender("orders", nil)
	must(t, sender, err)
	if err := sender.SendMessage(ctx, text("x"), nil); code(err) != azservicebus.CodeUnauthorizedAccess {
		t.Errorf("sent with a wrong key: %v", err)
	}
}
