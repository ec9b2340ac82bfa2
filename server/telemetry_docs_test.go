package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/raced"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// everyMetric runs a server until it has measured all there is.
func everyMetric(t *testing.T) scrape {
	model := modelsim.StartTest(unruly)
	t.Cleanup(model.Close)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(gone.Close)
	deployment := simulatedDeployment(model)
	deployment.Price = forebay.Price{Input: 1, Output: 1}
	deployment.TokensPerMinute = 100_000
	var asked atomic.Bool
	shy := forebay.Task{Name: "shy", Run: func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
		if !asked.Swap(true) {
			return forebay.TaskResult{}, &forebay.TaskError{Class: forebay.ClassThrottled, Code: "not_now", Uncalled: true}
		}
		return forebay.TaskResult{}, nil
	}}
	once := server.NewActivity("once", func(ctx context.Context, in string) (string, error) {
		if server.ActivityCallOf(ctx).Attempt == 1 {
			return "", errors.New("not yet")
		}
		return in, nil
	}).WithRetry(forebay.RetryPolicy{MaxAttempts: 2, First: time.Millisecond})
	calls := server.NewOrchestrator("calls", once.Call)
	s := startWatched(t, nil, server.Options{Deployments: []server.Deployment{deployment}, Queues: quick, Functions: []forebay.Task{shy}, Durable: []server.DurableFunction{once, calls},
		AzureServiceBus: server.AzureServiceBus{ // nothing listens there
			Connections: map[string]server.AzureConnection{"main": {ConnectionString: "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=aaaa", Endpoint: "127.0.0.1:1"}},
			Sources:     map[string]server.AzureSource{"orders": {Connection: "main", Task: "shy"}}},
		Tenants:  map[string]server.Tenant{"acme": {Budget: server.Budget{DailyUSD: new(50.0), MonthlyTokens: new(int64(5_000_000))}}},
		Webhooks: server.Webhooks{AllowHTTP: true, AllowAddresses: []string{"127.0.0.0/8"}}})
	for name, url := range map[string]string{"hook": receiver.URL, "gone": gone.URL} {
		if _, err := s.Do(t.Context(), http.MethodPost, "/v1/webhooks", nil, map[string]any{"name": name, "url": url}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	if job, _, err := s.Remote.Submit(t.Context(), "", map[string]any{"task": "shy", "input": 1}); err != nil {
		t.Fatal(err)
	} else {
		ids = append(ids, job.ID)
	}
	for _, marker := range []string{"good-1", "broken-1", "bad-1", "busy-1", "busy-2"} {
		ids = append(ids, s.Send(t, marker).ID)
	}
	for _, id := range ids {
		s.MustAwait(t, id)
	}
	if _, _, err := s.Remote.Submit(t.Context(), "", map[string]any{"task": "nonsense", "input": 1}); err == nil {
		t.Fatal("an unknown task was accepted")
	}
	id, err := s.StartOrchestration(t.Context(), "default", "calls", "", "x")
	if err != nil {
		t.Fatal(err)
	}
	if o, err := s.WaitOrchestration(t.Context(), "default", id, time.Minute); err != nil || o.Status != forebay.OrchestrationCompleted {
		t.Fatalf("%+v: %v", o, err)
	}
	// The last request: where there is a key, requests need one.
	if _, err := s.Do(t.Context(), http.MethodPost, "/v1/keys", nil, map[string]any{"tenant": "acme", "scopes": []string{"submit"}, "budget": map[string]any{"daily_tokens": 1000, "monthly_usd": 5}}, nil); err != nil {
		t.Fatal(err)
	}
	var got scrape
	servertest.Eventually(t, time.Minute, func() error {
		got = scrapeOf(t, s.Server)
		for name, labels := range map[string][]string{
			"forebay_orchestration_ended_total":      {"forebay_orchestrator", "calls", "forebay_status", "completed"},
			"forebay_orchestration_turns_total":      {"forebay_orchestrator", "calls", "forebay_outcome", "stored"},
			"forebay_orchestration_activities_total": {"forebay_activity", "once", "forebay_outcome", "retried"},
		} {
			if got.sum(name, labels...) == 0 {
				return fmt.Errorf("no %s with %v", name, labels)
			}
		}
		for _, labels := range [][2]string{{"forebay_outcome", "delivered"}, {"error_type", "status"}} {
			if got.sum("forebay_webhook_deliveries_total", labels[:]...) == 0 {
				return fmt.Errorf("no delivery with the %s %s", labels[0], labels[1])
			}
		}
		for name, limit := range map[string]float64{"forebay_budget_limit_tokens": 5_000_000, "forebay_key_budget_limit_tokens": 1000, "forebay_key_budget_limit_usd": 5} {
			if n := got.sum(name, "forebay_tenant", "acme"); n != limit {
				return fmt.Errorf("%s is %v", name, n)
			}
		}
		if got.sum("forebay_azure_service_bus_failures_total", "forebay_connector", "orders") == 0 {
			return errors.New("the connector did not fail")
		}
		if got.sum("forebay_admission_waits_total") == 0 {
			return errors.New("nothing went back without a call")
		}
		return nil
	})
	return got
}

var quoted = regexp.MustCompile("`([^`]+)`")

// names are the words in backquotes.
func names(cell string) (list []string) {
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		list = append(list, m[1])
	}
	return list
}

// documented is what docs/telemetry.md says: the labels of each metric and the values of labels.
func documented(t *testing.T) (metrics, values map[string][]string) {
	b, err := os.ReadFile("../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics, values = map[string][]string{}, map[string][]string{}
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		switch {
		case len(cells) == 6 && strings.Contains(cells[1], "."):
			labels := names(cells[3])
			slices.Sort(labels)
			metrics[names(cells[2])[0]] = labels
			if plain := strings.ReplaceAll(names(cells[1])[0], ".", "_"); !strings.HasPrefix(names(cells[2])[0], plain) {
				t.Errorf("%s is not how Prometheus names %s", cells[2], cells[1])
			}
		case len(cells) == 4 && strings.Contains(cells[1], "_"):
			for _, label := range names(cells[1]) {
				values[label] = names(cells[2])
			}
		}
	}
	return metrics, values
}

// The table of metrics is what a server shows, and the dashboard and the alerts ask for nothing
// else.
func TestDashboardAlertsAndDocsAreOfTheRealMetrics(t *testing.T) {
	raced.Skip(t, raced.Waiting)
	t.Parallel()
	got := everyMetric(t)
	metrics, values := documented(t)
	for _, name := range got.ours() {
		listed, ok := metrics[name]
		if !ok {
			t.Errorf("docs/telemetry.md lacks %s %v", name, got.labels(name))
		} else if real := got.labels(name); !slices.Equal(real, listed) {
			t.Errorf("%s has the labels %v, docs/telemetry.md says %v", name, real, listed)
		}
		for _, m := range got.families[name].GetMetric() {
			for _, l := range m.GetLabel() {
				if allowed := values[l.GetName()]; len(allowed) > 0 && !slices.Contains(allowed, l.GetValue()) {
					t.Errorf("docs/telemetry.md does not say that %s can be %s", l.GetName(), l.GetValue())
				}
			}
		}
	}
	for name := range metrics {
		if got.families[name] == nil {
			t.Errorf("docs/telemetry.md has %s, which no server shows", name)
		}
	}
	shown, alerted := map[string]bool{}, map[string]bool{}
	fresh := scrapeOf(t, startWatched(t, nil, server.Options{}).Server)
	if phantoms := fresh.of("forebay_azure_service_bus_messages_total"); len(phantoms) > 0 {
		t.Errorf("a server without connectors counts their messages: %v", phantoms)
	}
	for where, expression := range expressions(t) {
		asked := shown
		if strings.HasPrefix(where, "alert") {
			asked = alerted
			checkBeginnings(t, where, expression, fresh)
		}
		checkExpression(t, where, expression, got, values, asked)
	}
	for name := range alerted {
		if !shown[name] {
			t.Errorf("there is an alert on %s, which the dashboard does not show", name)
		}
	}
	for _, name := range got.ours() {
		if !shown[name] && !alerted[name] && name != "gen_ai_client_token_usage" && name != "gen_ai_server_time_to_first_token_seconds" {
			t.Errorf("neither the dashboard nor an alert uses %s", name)
		}
	}
}

func checkExpression(t *testing.T, where, expression string, got scrape, values map[string][]string, used map[string]bool) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Errorf("%s: %s: %v", where, expression, err)
		return
	}
	known := []string{"job", "instance", "le"}
	var grouped []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			name := n.Name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, ok := strings.CutSuffix(name, suffix); ok && got.families[base].GetType().String() == "HISTOGRAM" {
					name = base
				}
			}
			if got.families[name] == nil {
				t.Errorf("%s asks for %s, which no server shows", where, n.Name)
			}
			used[name] = true
			of := got.labels(name)
			known = append(known, of...)
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel && m.Name != "job" && !slices.Contains(of, m.Name) {
					t.Errorf("%s: %s has no label %s", where, name, m.Name)
				}
				for value := range strings.SplitSeq(m.Value, "|") {
					if allowed := values[m.Name]; m.Name != "error_type" && len(allowed) > 0 && value != "" && !slices.Contains(allowed, value) {
						t.Errorf("%s: %s is never %q", where, m.Name, value)
					}
				}
			}
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		}
		return nil
	})
	for _, label := range grouped {
		if !slices.Contains(known, label) {
			t.Errorf("%s groups by %s, which no metric in it has", where, label)
		}
	}
}

// checkBeginnings demands that an alert hears of counters that begin with their first count.
// An increase does not see that count. A comparison with 0 holds for no series that is missing.
func checkBeginnings(t *testing.T, where, expression string, fresh scrape) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return // checkExpression reports it
	}
	there := func(n *parser.VectorSelector) bool {
		labels := []string{}
		for _, m := range n.LabelMatchers {
			if m.Name != model.MetricNameLabel {
				labels = append(labels, m.Name, m.Value)
			}
		}
		return len(fresh.of(n.Name, labels...)) > 0
	}
	increased, before := map[string]bool{}, map[string]bool{}
	parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
		n, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		before[n.Name] = before[n.Name] || n.OriginalOffset > 0
		for _, above := range path {
			switch above := above.(type) {
			case *parser.Call:
				if above.Func.Name == "increase" && !there(n) {
					increased[n.Name] = true
				}
			case *parser.BinaryExpr:
				if zero, ok := above.RHS.(*parser.NumberLiteral); ok && above.Op == parser.EQLC && zero.Val == 0 && !there(n) {
					t.Errorf("%s compares %s with 0, which is missing at first", where, n.Name)
				}
			}
		}
		return nil
	})
	for name := range increased {
		if !before[name] {
			t.Errorf("%s does not see the first count of %s", where, name)
		}
	}
}

// expressions are those of the dashboard and of the alerts, by where they stand.
func expressions(t *testing.T) map[string]string {
	all := map[string]string{}
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	read(t, "../deploy/grafana/forebay.json", json.Unmarshal, &dashboard)
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			all["dashboard: "+p.Title+": "+target.LegendFormat] = strings.NewReplacer("$__rate_interval", "5m", "$job", ".*").Replace(target.Expr)
			for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !strings.Contains(target.Expr, m[1]) {
					t.Errorf("the legend of %q names %s, which its expression does not", p.Title, m[1])
				}
			}
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	read(t, "../deploy/prometheus/alerts.yaml", yaml.Unmarshal, &rules)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all["alert: "+r.Alert] = r.Expr
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d expressions were found", len(all))
	}
	return all
}

func read(t *testing.T, file string, decode func([]byte, any) error, into any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = decode(b, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
