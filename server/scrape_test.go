package server_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/forebayhq/forebay/server"
)

// scrape is what /metrics shows.
type scrape struct {
	text     string
	families map[string]*dto.MetricFamily
}

func scrapeOf(t *testing.T, s *server.Server) scrape {
	t.Helper()
	resp, err := http.Get("http://" + s.MetricsAddr(t.Context()).String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	return scrape{string(body), families}
}

// ours are the families that are neither the runtime's nor about the scrape.
func (s scrape) ours() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.families)) {
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") && name != "target_info" {
			names = append(names, name)
		}
	}
	return names
}

// labels are those that any series of the family has.
func (s scrape) labels(name string) []string {
	seen := map[string]bool{}
	for _, m := range s.families[name].GetMetric() {
		for _, l := range m.GetLabel() {
			seen[l.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// sum adds up the series that have these labels, name and value in turn: values, or the counts of
// histograms.
func (s scrape) sum(name string, labels ...string) (sum float64) {
	for _, m := range s.of(name, labels...) {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

// of returns the series that have these labels, name and value in turn.
func (s scrape) of(name string, labels ...string) (list []*dto.Metric) {
	for _, m := range s.families[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		fits := true
		for i := 0; i < len(labels); i += 2 {
			fits = fits && has[labels[i]] == labels[i+1]
		}
		if fits {
			list = append(list, m)
		}
	}
	return list
}
