package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// budgetFlags adds the limits of a budget.
func budgetFlags(flags *pflag.FlagSet, b *forebay.Budget) {
	tokens := command.UpTo(forebay.MaxBudgetTokens, "")
	command.OptionalFlag(flags, &b.DailyUSD, "daily-usd", command.Dollars, "US dollars a day (default: no limit)")
	command.OptionalFlag(flags, &b.MonthlyUSD, "monthly-usd", command.Dollars, "US dollars a month (default: no limit)")
	command.OptionalFlag(flags, &b.DailyTokens, "daily-tokens", tokens, "tokens a day, input and output together (default: no limit)")
	command.OptionalFlag(flags, &b.MonthlyTokens, "monthly-tokens", tokens, "tokens a month, input and output together (default: no limit)")
}

// newBudget adds the flags of a budget that replaces another. --none must be given to have no
// limits.
func newBudget(c *cobra.Command) *forebay.Budget {
	b := &forebay.Budget{}
	budgetFlags(c.Flags(), b)
	none := c.Flags().Bool("none", false, "no limit at all")
	c.PreRunE = func(*cobra.Command, []string) error {
		return command.ExactlyOne("say what the budget is, such as --daily-usd 50, or --none for no limit", "--none goes with no limit",
			!b.Empty(), *none)
	}
	return b
}

// budgetText writes a budget in one line.
func budgetText(b forebay.Budget) string {
	var parts []string
	dollars := func(amount *forebay.Money, per string) {
		if amount != nil {
			parts = append(parts, fmt.Sprintf("%s USD/%s", *amount, per))
		}
	}
	tokens := func(amount *int64, per string) {
		if amount != nil {
			parts = append(parts, fmt.Sprintf("%d tokens/%s", *amount, per))
		}
	}
	dollars(b.DailyUSD, "day")
	dollars(b.MonthlyUSD, "month")
	tokens(b.DailyTokens, "day")
	tokens(b.MonthlyTokens, "month")
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func budgetFields(prefix string, s forebay.BudgetState) []command.Field {
	return []command.Field{
		{prefix + "budget", budgetText(s.Budget)},
		{prefix + "today", usedIn(s, 0)},
		{prefix + "month", usedIn(s, 1)},
		{prefix + "waiting for it", command.Count(s.Waiting)},
	}
}

// usedIn writes what was used and what is reserved in a period. Period 0 is the day and 1 is the
// month.
func usedIn(s forebay.BudgetState, period int) string {
	if period >= len(s.Usage) {
		return ""
	}
	u := s.Usage[period]
	text := fmt.Sprintf("%s USD, %d tokens", u.CostUSD, u.Tokens)
	if u.HeldTokens != 0 || u.HeldUSD != 0 {
		text += fmt.Sprintf(" (held: %s USD, %d tokens)", u.HeldUSD, u.HeldTokens)
	}
	return text
}
