package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// complaints logs that a collector does not accept data, at most once a minute, and that it does
// so again. The error is not logged, because it may contain the collector's answer or URL.
type complaints struct {
	log    *slog.Logger
	signal string
	mu     sync.Mutex
	last   time.Time
	failed int  // exports since the latest complaint
	bad    bool // complained, and nothing was accepted since
}

func (c *complaints) about(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		return
	}
	if err == nil {
		if c.bad {
			c.log.Info("the OTLP collector accepts data again", slog.String("signal", c.signal))
		}
		c.bad = false
		return
	}
	c.failed++
	if time.Since(c.last) < time.Minute {
		return
	}
	failure, status := classify(err)
	attrs := []any{slog.String("signal", c.signal), slog.String("failure", failure), slog.Int("failed_exports", c.failed)}
	if status != 0 {
		attrs = append(attrs, slog.Int("status", status))
	}
	c.log.Warn("the OTLP collector cannot be reached or refuses what it is sent", attrs...)
	c.last, c.failed, c.bad = time.Now(), 0, true
}

// Why an export failed, in the words of webhooks where these have one.
const (
	failedStatus     = "status"  // an answer other than 2xx
	failedPartly     = "partial" // a part was refused
	failedTimeout    = "timeout"
	failedAddress    = "address" // the host's name has none
	failedTLS        = "tls"
	failedNotHTTP    = "not_http" // such as the collector's port for gRPC
	failedConnection = "connection"
)

// refusal is how the exporter tells of a status that it does not repeat the export for.
var refusal = regexp.MustCompile(`failed to send to .*?: ([1-5]\d\d)\b`)

// classify says why an export failed, and the status of the answer if it is known. The exporter
// has no types for what a collector answered.
func classify(err error) (failure string, status int) {
	var resolve *net.DNSError
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var network net.Error
	text := err.Error()
	if answered := refusal.FindStringSubmatch(text); answered != nil {
		status, _ = strconv.Atoi(answered[1])
	}
	switch {
	case errors.As(err, &resolve):
		return failedAddress, 0
	case errors.As(err, &certificate), errors.As(err, &alert), errors.As(err, &record):
		return failedTLS, 0
	case strings.Contains(text, "malformed HTTP"):
		return failedNotHTTP, 0
	case status != 0, strings.Contains(text, "retry-able request failure: body"):
		return failedStatus, status
	case strings.Contains(text, "OTLP partial success"):
		return failedPartly, 0
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return failedTimeout, 0
	}
	return failedConnection, 0
}
