package server_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/server"
)

func TestDurationsAreLoggedWithTheirUnit(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var log bytes.Buffer
		server.NewLogger(&log, server.Log{Format: format}).Info("x", slog.Duration("a", 1200*time.Millisecond), slog.Any("b", 2*time.Second),
			slog.Group("g", slog.Duration("c", time.Minute)))
		for _, want := range []string{"1.2s", "2s", "1m0s"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: %q is not in %s", format, want, log.String())
			}
		}
	}
}
