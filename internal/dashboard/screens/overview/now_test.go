package overview

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

// Whoever has jobs that wait for a budget needs somebody, whatever is used of it.
func TestBudgetsThatNeedSomebody(t *testing.T) {
	nothing, five := forebay.USD(0), forebay.USD(5)
	used := func(dollars float64) []forebay.BudgetUse {
		return []forebay.BudgetUse{{Period: forebay.BudgetDay, CostUSD: forebay.USD(dollars)}}
	}
	for _, c := range []struct {
		name  string
		state forebay.BudgetState
		want  string // "": nobody is needed
	}{
		{"half used", forebay.BudgetState{Budget: forebay.Budget{DailyUSD: &five}, Usage: used(2.5)}, ""},
		{"near its end", forebay.BudgetState{Budget: forebay.Budget{DailyUSD: &five}, Usage: used(4.5)}, "has used 90 % of its budget of the day."},
		{"less left than a job needs", forebay.BudgetState{Budget: forebay.Budget{DailyUSD: &five}, Usage: used(2.5), Waiting: 2}, "has used 50 % of its budget of the day."},
		{"nothing", forebay.BudgetState{Budget: forebay.Budget{DailyUSD: &nothing}, Usage: used(0)}, ""},
		{"nothing, and jobs wait", forebay.BudgetState{Budget: forebay.Budget{DailyUSD: &nothing}, Usage: used(0), Waiting: 2}, "has used 0 % of its budget."},
	} {
		needs := needsOfTenants([]forebay.Tenant{{Name: "acme", BudgetState: c.state, Keys: []forebay.KeyBudget{{KeyID: "key_1", BudgetState: c.state}}}})
		if c.want == "" {
			if len(needs) > 0 {
				t.Errorf("%s: %+v", c.name, needs)
			}
			continue
		}
		if len(needs) != 2 || !strings.Contains(needs[0].What, c.want) || !strings.Contains(needs[1].What, c.want) || needs[0].Bad != (c.state.Waiting > 0) {
			t.Errorf("%s: %+v, want %q", c.name, needs, c.want)
		}
	}
}
