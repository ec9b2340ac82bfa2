package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/forebayhq/forebay"
)

// reports is the part of Client about reports.
type reports struct{ *endpoint }

// RetryReport returns how attempts ended between two times. The server chooses a bound that is
// zero.
func (c *reports) RetryReport(ctx context.Context, since, until time.Time) (forebay.RetryReport, error) {
	query := url.Values{}
	setTime(query, "since", since)
	setTime(query, "until", until)
	var report forebay.RetryReport
	err := c.call(ctx, request{method: http.MethodGet, path: path("reports", "retries"), query: query}, &report)
	return report, err
}
