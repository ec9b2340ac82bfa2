package operate

import (
	"fmt"
	"html/template"
	"net/url"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

type retriesData struct {
	span
	Spans  []choice
	All    bool // tenants
	Report forebay.RetryReport
	Chart  template.HTML
	// The rows that fit on the page.
	ByAttempt    []forebay.AttemptCount
	ByError      []forebay.ErrorRetries
	ByDeployment []forebay.ErrorCount
	ByTask       []forebay.ErrorCount
}

// reportRows is how many rows each table of the page shows.
const reportRows = 20

func first[T any](list []T) []T { return list[:min(len(list), reportRows)] }

// showRetries answers GET /retries.
func showRetries(r *kit.Request) error {
	s, err := spanOf(r)
	if err != nil {
		return err
	}
	report, err := kit.Fetch[forebay.RetryReport](r, "/v1/reports/retries",
		kit.Values("since", timeValue(s.Since), "until", timeValue(s.Until), "all_tenants", allTenants(r)))
	if err != nil {
		return err
	}
	data := retriesData{span: s, Spans: spans, All: r.AllTenants(), Report: report, Chart: drawHours(report),
		ByAttempt: first(report.ByAttempt), ByError: first(report.ByError), ByDeployment: first(report.ByDeployment), ByTask: first(report.ByTask)}
	command := "forebay report retries" + spanFlags(s)
	if data.All {
		command += " --all-tenants"
	}
	return pages.Render(r, "retries", kit.Page{Title: "Retries", Section: "/retries", Data: data, Still: true, Commands: []string{command}})
}

// maxColumns bounds a chart. Longer times are drawn by several hours together.
const maxColumns = 192

// drawHours makes the chart of attempts, and of those that failed.
func drawHours(report forebay.RetryReport) template.HTML {
	step := time.Hour
	for _, longer := range []time.Duration{time.Hour, 6 * time.Hour, 24 * time.Hour} {
		if step = longer; report.Until.Sub(report.Since) <= maxColumns*step {
			break
		}
	}
	counts := map[time.Time]forebay.HourCount{}
	for _, h := range report.ByHour {
		at := h.Hour.UTC().Truncate(step)
		sum := counts[at]
		sum.Attempts += h.Attempts
		sum.Failed += h.Failed
		sum.Throttled += h.Throttled
		counts[at] = sum
	}
	const layout = "2006-01-02 15:04"
	var columns []kit.Column
	highest := forebay.HourCount{}
	for at := report.Since.UTC().Truncate(step); at.Before(report.Until) && len(columns) < 2*maxColumns; at = at.Add(step) {
		sum := counts[at]
		if sum.Attempts > highest.Attempts {
			highest = sum
			highest.Hour = at
		}
		columns = append(columns, kit.Column{Value: float64(sum.Attempts), Bad: float64(sum.Failed),
			Label: fmt.Sprintf("%s: %s, %s failed, %s of them throttled", at.Format(layout), kit.Plural(sum.Attempts, "attempt"), kit.Number(sum.Failed), kit.Number(sum.Throttled))})
	}
	label := fmt.Sprintf("Attempts, each %s, with those that failed, %s to %s", kit.Duration(step), report.Since.Format(layout), report.Until.Format(layout))
	if highest.Attempts > 0 {
		label += fmt.Sprintf("; the most are %s at %s", kit.Number(highest.Attempts), highest.Hour.Format(layout))
	}
	return kit.Chart(label, columns)
}

// Helped is the share of retried jobs that are over and have succeeded.
func (d retriesData) Helped() string {
	return kit.Percent(d.Report.JobsRetriedSucceeded, d.Report.JobsRetriedSucceeded+d.Report.JobsRetriedFailed)
}

// DeploymentPath is the page of a deployment; "" if there is none.
func (retriesData) DeploymentPath(name string) string {
	if name == "" {
		return ""
	}
	return deploymentsPath + "/" + url.PathEscape(name)
}

// DeadLetters is the page of jobs that were set aside for such errors. The reason of a permanent
// one is its code. Others are set aside when their attempts are used up, so their class selects.
// "": none are set aside.
func (retriesData) DeadLetters(class forebay.ErrorClass, code, task string) string {
	query := kit.Values("task", task)
	switch class {
	case forebay.ClassPermanent:
		query.Set("reason", code)
	case forebay.ClassThrottled, "":
		return ""
	default:
		query.Set("error_class", string(class))
	}
	return "/dead-letters?" + query.Encode()
}
