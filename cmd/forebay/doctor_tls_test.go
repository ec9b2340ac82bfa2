package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/command"
)

// writeCertificate writes a certificate that ends at a time, and its key.
func writeCertificate(t *testing.T, ends time.Time) (certFile, keyFile string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ends.Add(-time.Hour), NotAfter: ends}
	certificate, err := x509.CreateCertificate(rand.Reader, about, about, public, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name, kind string, data []byte) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", certificate), write("key.pem", "PRIVATE KEY", key)
}

// The doctor finds a certificate with which a server would not start, or nobody would connect.
func TestDoctorReadsTheCertificate(t *testing.T) {
	t.Parallel()
	good, goodKey := writeCertificate(t, time.Now().AddDate(100, 0, 0))
	old, oldKey := writeCertificate(t, time.Now().AddDate(-20, 0, 0))
	for name, c := range map[string]struct {
		cert, key, want string // want is "" if nothing is wrong
	}{
		"good":        {good, goodKey, ""},
		"missing":     {filepath.Join(t.TempDir(), "none.pem"), goodKey, "no such file or directory"},
		"another key": {good, oldKey, "does not match"},
		"ended":       {old, oldKey, "ends at"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "forebay.yaml")
			if err := os.WriteFile(file, []byte("tls: {cert_file: '"+c.cert+"', key_file: '"+c.key+"'}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"--config", file, "--listen", "127.0.0.1:0", "--database", "sqlite:" + filepath.Join(t.TempDir(), "forebay.db")}
			wrong := commandLine{}.wrong(t, args...)
			if c.want == "" {
				if len(wrong) > 0 {
					t.Errorf("%+v", wrong)
				}
				return
			}
			if len(wrong) != 1 || wrong[0].Name != "certificate" || !strings.Contains(wrong[0].Detail, c.want) {
				t.Errorf("%+v", wrong)
			}
			if got := (commandLine{}).run(t.Context(), append([]string{"doctor"}, args...)...); got.code == command.ExitOK {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The check of a configuration finds a certificate with which a server would not start. Other
// commands that read the configuration do not need its files.
func TestConfigValidateReadsTheCertificate(t *testing.T) {
	t.Parallel()
	good, goodKey := writeCertificate(t, time.Now().AddDate(100, 0, 0))
	_, otherKey := writeCertificate(t, time.Now().AddDate(100, 0, 0))
	folder := t.TempDir()
	none := filepath.Join(folder, "none.pem")
	const absent, needsBoth = "cannot be read: no such file or directory\n", "forebay: tls: needs both cert_file and key_file\n"
	for name, c := range map[string]struct {
		cert, key, want string
	}{
		"good":           {good, goodKey, ""},
		"no certificate": {none, goodKey, "forebay: tls.cert_file: " + absent},
		"no key":         {good, none, "forebay: tls.key_file: " + absent},
		"a folder":       {good, folder, "forebay: tls.key_file: cannot be read: is a directory\n"},
		"another key":    {good, otherKey, "forebay: tls: the certificate and its key cannot be used: tls: private key does not match public key\n"},
		"not named":      {good, "", needsBoth},
		"only a key":     {"", goodKey, needsBoth},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "forebay.yaml")
			write := func(more string) {
				if err := os.WriteFile(file, []byte("tls: {cert_file: '"+c.cert+"', key_file: '"+c.key+"'}\n"+more), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("")
			if got := (commandLine{}).run(t.Context(), "config", "validate", "--config", file); got.err != c.want || (got.code == command.ExitConfiguration) != (c.want != "") {
				t.Errorf("%+v", got)
			}
			if got := (commandLine{}).run(t.Context(), "config", "show", "--config", file); got.code != command.ExitOK && c.want != needsBoth {
				t.Errorf("show: %+v", got)
			}
			write("log: {level: loud}\n") // all that is wrong is told at once
			if got := (commandLine{}).run(t.Context(), "config", "validate", "--config", file); !strings.Contains(got.err, "forebay: log.level: ") || !strings.Contains(got.err, c.want) {
				t.Errorf("with another mistake: %+v", got)
			}
		})
	}
}
