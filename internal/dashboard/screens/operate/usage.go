package operate

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// maxHourly is the longest time that is drawn by the hour, so that a page has few elements.
const maxHourly = 8 * 24 * time.Hour

// maxLength is a little more than what reports go back.
const maxLength = 92 * 24 * time.Hour

type usageData struct {
	span
	Spans      []choice
	All        bool // tenants
	Step       forebay.UsageStep
	HourlyToo  bool // an hour can be chosen
	Metric     string
	Report     forebay.UsageReport
	Dimensions []dimension
	Rows       []usageRow
	TooMany    bool // rows would have been asked for, so there is only their sum
	Next       string
	Chart      template.HTML
	Highest    string
	HighestAt  string
}

// dimension is what rows are told apart by, or can be.
type dimension struct {
	Name   forebay.UsageBy
	Chosen bool
	Query  string // of the address that turns it on or off
}

// usageRow is a row of the table.
type usageRow struct {
	forebay.UsageSum
	Share string // of the cost
	Cells []usageCell
}

// usageCell is a value of a dimension, with the page about it.
type usageCell struct{ Text, Path string }

// showUsage answers GET /usage.
func showUsage(r *kit.Request) error {
	s, err := spanOf(r)
	if err != nil {
		return err
	}
	data := usageData{span: s, Spans: spans, All: r.AllTenants(), Metric: "cost"}
	if data.Step, data.HourlyToo, err = stepOf(r, s); err != nil {
		return err
	}
	by, err := data.dimensions(r)
	if err != nil {
		return err
	}
	query := func(step forebay.UsageStep, by ...string) url.Values {
		q := kit.Values("since", timeValue(s.Since), "until", timeValue(s.Until), "step", string(step), "all_tenants", allTenants(r))
		q["by"] = by
		return q
	}
	steps, err := kit.Fetch[forebay.UsageReport](r, "/v1/reports/usage", query(data.Step))
	if err != nil {
		return err
	}
	data.Report, err = kit.Fetch[forebay.UsageReport](r, "/v1/reports/usage", query(forebay.UsageWhole, by...))
	// The same time was reported above, so it is the rows that are too many.
	if refused := (*forebay.Error)(nil); errors.As(err, &refused) && refused.Field == "since" {
		data.TooMany, by = true, nil
		data.Report, err = kit.Fetch[forebay.UsageReport](r, "/v1/reports/usage", query(forebay.UsageWhole))
	}
	if err != nil {
		return err
	}
	if r.Query("metric") == "tokens" {
		data.Metric = "tokens"
	}
	data.draw(steps)
	slices.SortStableFunc(data.Report.Rows, func(a, b forebay.UsageRow) int {
		return cmp.Or(cmp.Compare(b.CostUSD, a.CostUSD), cmp.Compare(b.InputTokens+b.OutputTokens, a.InputTokens+a.OutputTokens), cmp.Compare(b.Attempts, a.Attempts))
	})
	rows, next, err := part(r, data.Report.Rows)
	if err != nil {
		return err
	}
	data.Next = next
	for _, row := range rows {
		data.Rows = append(data.Rows, usageRow{row.UsageSum, kit.Percent(int64(row.CostUSD), int64(data.Report.Total.CostUSD)), cells(row, by, r.Operator())})
	}
	return pages.Render(r, "usage", kit.Page{Title: "Usage", Section: "/usage", Data: data, Still: true, Commands: []string{usageCommand(r, s, data.Step, by)}})
}

// stepOf returns the step of the chart. hourly reports whether it may be an hour.
func stepOf(r *kit.Request, s span) (step forebay.UsageStep, hourly bool, err error) {
	length := s.until().Sub(s.Since)
	if length > maxLength {
		return "", false, forebay.Invalid("since", "goes back 90 days at most")
	}
	hourly = length <= maxHourly
	switch step = forebay.UsageStep(r.Query("step")); step {
	case "":
		if step = forebay.UsageDaily; length <= 3*24*time.Hour {
			step = forebay.UsageHourly
		}
	case forebay.UsageHourly:
		if !hourly {
			step = forebay.UsageDaily
		}
	case forebay.UsageDaily:
	default:
		return "", false, forebay.Invalid("step", "must be hour or day")
	}
	return step, hourly, nil
}

// dimensions reads what rows are told apart by.
func (d *usageData) dimensions(r *kit.Request) (by []string, err error) {
	offered := []forebay.UsageBy{forebay.UsageByTask, forebay.UsageByDeployment, forebay.UsageByModel}
	standard := forebay.UsageByTask
	if d.All {
		offered = append([]forebay.UsageBy{forebay.UsageByTenant}, offered...)
		standard = forebay.UsageByTenant
	}
	for name := range strings.SplitSeq(r.Query("by"), ",") {
		if name == "" || name == string(forebay.UsageByTenant) && !d.All {
			continue
		}
		if !slices.Contains(offered, forebay.UsageBy(name)) {
			return nil, forebay.Invalid("by", "takes tenant, task, deployment and model, with commas between them")
		}
		by = append(by, name)
	}
	if len(by) == 0 {
		by = []string{string(standard)}
	}
	for _, one := range offered {
		chosen := slices.Contains(by, string(one))
		others := slices.DeleteFunc(slices.Clone(by), func(name string) bool { return name == string(one) })
		if !chosen {
			others = append(others, string(one))
		}
		d.Dimensions = append(d.Dimensions, dimension{one, chosen, strings.Join(others, ",")})
	}
	return by, nil
}

// draw makes the chart of a report by the hour or the day.
func (d *usageData) draw(report forebay.UsageReport) {
	length, layout, word := 24*time.Hour, "2006-01-02", "day"
	if d.Step == forebay.UsageHourly {
		length, layout, word = time.Hour, "2006-01-02 15:04", "hour"
	}
	sums := map[time.Time]forebay.UsageSum{}
	for _, row := range report.Rows {
		sums[row.Time.UTC()] = row.UsageSum
	}
	var columns []kit.Column
	highest := 0.0
	for at := report.Since.UTC().Truncate(length); at.Before(report.Until); at = at.Add(length) {
		sum := sums[at]
		value, text := sum.CostUSD.Dollars(), kit.Money(sum.CostUSD)
		if d.Metric == "tokens" {
			value, text = float64(sum.InputTokens+sum.OutputTokens), kit.Tokens(sum.InputTokens+sum.OutputTokens)+" tokens"
		}
		if value > highest {
			highest, d.Highest, d.HighestAt = value, text, at.Format(layout)
		}
		columns = append(columns, kit.Column{Label: at.Format(layout) + ": " + text, Value: value})
	}
	label := fmt.Sprintf("%s by the %s, %s to %s", d.Metric, word, report.Since.Format(layout), report.Until.Format(layout))
	if d.Highest != "" {
		label += fmt.Sprintf("; the highest is %s at %s", d.Highest, d.HighestAt)
	}
	d.Chart = kit.Chart(label, columns)
}

// cells returns what tells a row apart. An operator may open the pages about it.
func cells(row forebay.UsageRow, by []string, operator bool) (list []usageCell) {
	value := func(text *string, empty string, path string) usageCell {
		if text == nil || *text == "" {
			return usageCell{Text: empty}
		}
		if path == "" {
			return usageCell{Text: *text}
		}
		return usageCell{*text, path + url.PathEscape(*text)}
	}
	for _, name := range by {
		switch forebay.UsageBy(name) {
		case forebay.UsageByTenant:
			list = append(list, value(row.Tenant, "–", "/tenants/"))
		case forebay.UsageByTask:
			list = append(list, value(row.Task, "–", "/jobs?task="))
		case forebay.UsageByModel:
			list = append(list, value(row.Model, "not known", ""))
		case forebay.UsageByDeployment:
			path := ""
			if operator {
				path = deploymentsPath + "/"
			}
			list = append(list, value(row.Deployment, "none", path))
		}
	}
	return list
}

func usageCommand(r *kit.Request, s span, step forebay.UsageStep, by []string) string {
	command := "forebay report usage" + spanFlags(s) + " --by " + strings.Join(by, ",") + " --step " + string(step)
	if r.AllTenants() {
		command += " --all-tenants"
	}
	return command
}

// spanFlags are the flags of commands for the time of a report.
func spanFlags(s span) string {
	if s.Last != "" {
		return " --since " + s.Last
	}
	flags := " --since " + timeValue(s.Since)
	if !s.Until.IsZero() {
		flags += " --until " + timeValue(s.Until)
	}
	return flags
}
