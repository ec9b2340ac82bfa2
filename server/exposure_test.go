package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

func TestWarnsOfAddressesThatOtherMachinesReach(t *testing.T) {
	const noTLS, noKey, openMetrics = "without TLS", "no API key yet", "metrics need no key"
	for name, c := range map[string]struct {
		listen string
		key    bool
		want   []string
	}{
		"loopback":                         {"127.0.0.1:0", false, nil},
		"all addresses":                    {"0.0.0.0:0", false, []string{noTLS, noKey, openMetrics}},
		"all addresses, with an API key":   {"0.0.0.0:0", true, []string{noTLS, openMetrics}},
		"all addresses by an empty string": {":0", true, []string{noTLS, openMetrics}},
	} {
		t.Run(name, func(t *testing.T) {
			database := "sqlite:" + filepath.Join(t.TempDir(), "forebay.db")
			if c.key {
				keys, err := server.OpenKeys(t.Context(), database)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := keys.Create(t.Context(), "acme", []forebay.Scope{forebay.ScopeRead}, nil, forebay.Budget{}); err != nil {
					t.Fatal(err)
				}
				if err := keys.Close(); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			opts := server.Options{Database: database, Listen: c.listen, Logger: slog.New(slog.NewJSONHandler(&log, nil))}
			opts.Metrics.Listen, opts.Orchestrations.GRPC.Address = c.listen, c.listen
			s, err := server.New(opts)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			s.Addr(ctx)
			stop()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			for _, warning := range []string{noTLS, noKey, openMetrics} {
				got := strings.Contains(log.String(), warning)
				if want := strings.Contains(strings.Join(c.want, "|"), warning); got != want {
					t.Errorf("warns %q: %v, want %v; the log: %s", warning, got, want, log.String())
				}
			}
		})
	}
}
