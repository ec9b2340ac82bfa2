package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// certify writes a certificate with that number, and its key.
func certify(t *testing.T, files server.TLS, number int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(number), Subject: pkix.Name{CommonName: "localhost"}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{files.CertFile: {Type: "CERTIFICATE", Bytes: certificate}, files.KeyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A renewed certificate is used for new connections after a reload, by HTTP and by gRPC. One that
// cannot be read is refused, with all other changes of that reload.
func TestReloadCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := server.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	certify(t, files, 1)
	o := server.Options{Database: "sqlite:" + filepath.Join(dir, "forebay.db"), TLS: files}
	o.Orchestrations.GRPC.Address = "127.0.0.1:0"
	s := servertest.Start(t, o)
	shown := func() (numbers []int64) {
		t.Helper()
		for _, address := range []string{s.Addr(t.Context()).String(), s.GRPCAddr(t.Context()).String()} {
			// Only the identity of the certificate matters.
			conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64())
			conn.Close()
		}
		return numbers
	}
	certify(t, files, 2)
	if got := shown(); !slices.Equal(got, []int64{1, 1}) {
		t.Errorf("certificates %v before a reload", got)
	}
	if _, err := s.Reload(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got := shown(); !slices.Equal(got, []int64{2, 2}) {
		t.Errorf("certificates %v after a reload", got)
	}
	if err := os.WriteFile(files.KeyFile, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Deployments = []server.Deployment{{Name: "other", Provider: server.ProviderSim}}
	o.Models = map[string]server.Model{"default": {Deployments: []server.ModelDeployment{{Name: "other"}}}}
	if _, err := s.Reload(t.Context(), o); err == nil {
		t.Error("a key that cannot be read was taken in")
	}
	if got := shown(); !slices.Equal(got, []int64{2, 2}) {
		t.Errorf("certificates %v after a refused reload", got)
	}
}

// Faults that an operator has set on a simulated deployment outlive a reload, unless it changes
// what is configured of the simulation.
func TestReloadKeepsSimFaults(t *testing.T) {
	t.Parallel()
	o := server.Options{Database: "sqlite:" + servertest.DatabaseFile(t), Deployments: []server.Deployment{{Name: "east", Provider: server.ProviderSim}},
		Models: map[string]server.Model{"chat": {Deployments: []server.ModelDeployment{{Name: "east"}}}}}
	s := servertest.Start(t, o)
	c, err := client.New(client.Options{BaseURL: servertest.Over(t, s).URL})
	if err != nil {
		t.Fatal(err)
	}
	faults := func() string {
		t.Helper()
		list, err := c.SimFaults(t.Context(), "east")
		if err != nil {
			t.Fatal(err)
		}
		return string(list)
	}
	configured := faults()
	if err := c.SetSimFaults(t.Context(), "east", []byte(`{"error_rate":0.25}`)); err != nil {
		t.Fatal(err)
	}
	set := faults()
	if set == configured {
		t.Fatalf("the faults are still %s", set)
	}
	o.Deployments = []server.Deployment{{Name: "east", Provider: server.ProviderSim, TokensPerMinute: 1000}}
	if _, err := s.Reload(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got := faults(); got != set {
		t.Errorf("a reload has changed the faults from %s to %s", set, got)
	}
	o.Deployments = []server.Deployment{{Name: "east", Provider: server.ProviderSim, Sim: server.Sim{ErrorRate: 0.5}}}
	if _, err := s.Reload(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got := faults(); !strings.Contains(got, "0.5") {
		t.Errorf("the faults are %s after a reload with others", got)
	}
}
