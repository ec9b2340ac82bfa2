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
	return c.retries(ctx, since, until, url.Values{})
}

// RetryReportOfAll is RetryReport for all tenants together. It needs forebay.ScopeView.
func (c *reports) RetryReportOfAll(ctx context.Context, since, until time.Time) (forebay.RetryReport, error) {
	return c.retries(ctx, since, until, allTenants())
}

func (c *reports) retries(ctx context.Context, since, until time.Time, query url.Values) (forebay.RetryReport, error) {
	setTime(query, "since", since)
	setTime(query, "until", until)
	var report forebay.RetryReport
	err := c.call(ctx, request{method: http.MethodGet, path: path("reports", "retries"), query: query}, &report)
	return report, err
}

// Usage returns what calls were made, how they ended, and what they used and cost. The sums of
// all tenants need forebay.ScopeView.
func (c *reports) Usage(ctx context.Context, q forebay.UsageQuery) (forebay.UsageReport, error) {
	query := url.Values{}
	if q.AllTenants {
		query = allTenants()
	}
	setTime(query, "since", q.Since)
	setTime(query, "until", q.Until)
	for _, by := range q.By {
		query.Add("by", string(by))
	}
	if q.Step != "" {
		query.Set("step", string(q.Step))
	}
	var report forebay.UsageReport
	err := c.call(ctx, request{method: http.MethodGet, path: path("reports", "usage"), query: query}, &report)
	return report, err
}

// allTenants is the query of what all tenants have together.
func allTenants() url.Values { return url.Values{"all_tenants": {"true"}} }
