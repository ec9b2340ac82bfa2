package operate

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// budgetPart is one limit of a budget with its use, or the use of a period without a limit.
type budgetPart struct {
	Text              string
	Used, Held, Limit int64
	Limited           bool
	EndsAt            *time.Time // of a part with a limit
}

// Label says in words what the bar shows.
func (p budgetPart) Label() string { return p.Text }

// partsOf returns the limits of a budget with their use. Without any, it tells the use of the day
// and the month.
func partsOf(b forebay.Budget, usage []forebay.BudgetUse) (parts []budgetPart) {
	uses := map[forebay.BudgetPeriod]forebay.BudgetUse{}
	for _, use := range usage {
		uses[use.Period] = use
	}
	add := func(period forebay.BudgetPeriod, usd *forebay.Money, tokens *int64) {
		use, known := uses[period]
		var ends *time.Time
		if known {
			ends = &use.EndsAt
		}
		if usd != nil {
			parts = append(parts, budgetPart{Used: int64(use.CostUSD), Held: int64(use.HeldUSD), Limit: int64(*usd), Limited: true, EndsAt: ends,
				Text: budgetText(kit.Money(use.CostUSD), kit.Money(use.HeldUSD), kit.Money(*usd), use.HeldUSD != 0, period)})
		}
		if tokens != nil {
			parts = append(parts, budgetPart{Used: use.Tokens, Held: use.HeldTokens, Limit: *tokens, Limited: true, EndsAt: ends,
				Text: budgetText(kit.Tokens(use.Tokens), kit.Tokens(use.HeldTokens), kit.Tokens(*tokens)+" tokens", use.HeldTokens != 0, period)})
		}
	}
	add(forebay.BudgetDay, b.DailyUSD, b.DailyTokens)
	add(forebay.BudgetMonth, b.MonthlyUSD, b.MonthlyTokens)
	return parts
}

// budgetText is such as "$3 used and $1 held of $5 a day".
func budgetText(used, held, limit string, holds bool, period forebay.BudgetPeriod) string {
	if holds {
		used += " used and " + held + " held"
	} else {
		used += " used"
	}
	return fmt.Sprintf("%s of %s a %s", used, limit, period)
}

// budgetFields are the names of the fields of a budget's form.
var budgetFields = []string{"daily_usd", "monthly_usd", "daily_tokens", "monthly_tokens"}

// textsOf returns what the fields show of a budget.
func textsOf(b *forebay.Budget) map[string]string {
	texts := map[string]string{}
	if b == nil {
		b = &forebay.Budget{}
	}
	for name, usd := range map[string]*forebay.Money{"daily_usd": b.DailyUSD, "monthly_usd": b.MonthlyUSD} {
		if texts[name] = ""; usd != nil {
			texts[name] = usd.String()
		}
	}
	for name, tokens := range map[string]*int64{"daily_tokens": b.DailyTokens, "monthly_tokens": b.MonthlyTokens} {
		if texts[name] = ""; tokens != nil {
			texts[name] = strconv.FormatInt(*tokens, 10)
		}
	}
	return texts
}

// budgetVersion is what a form shows of a budget of what has that entity tag.
func budgetVersion(etag string, b *forebay.Budget) kit.Version {
	texts := textsOf(b)
	values := make([]kit.Value, len(budgetFields))
	for i, name := range budgetFields {
		values[i] = kit.Value{Name: name, Text: texts[name]}
	}
	return kit.VersionOf(etag, values...)
}

// typedBudget returns what somebody typed into the fields.
func typedBudget(form url.Values) map[string]string {
	texts := map[string]string{}
	for _, name := range budgetFields {
		texts[name] = strings.TrimSpace(form.Get(name))
	}
	return texts
}

// readBudget reads the fields of a budget.
func readBudget(texts map[string]string) (b forebay.Budget, err error) {
	for name, field := range map[string]**forebay.Money{"daily_usd": &b.DailyUSD, "monthly_usd": &b.MonthlyUSD} {
		if text := texts[name]; text != "" {
			var usd forebay.Money
			if usd.UnmarshalJSON([]byte(text)) != nil {
				return b, forebay.Invalid(name, "must be a number of US dollars, such as 12.50")
			}
			*field = &usd
		}
	}
	for name, field := range map[string]**int64{"daily_tokens": &b.DailyTokens, "monthly_tokens": &b.MonthlyTokens} {
		if *field, err = readCount(name, texts[name]); err != nil {
			return b, err
		}
	}
	if problem := b.Check(""); problem != nil {
		return b, problem
	}
	return b, nil
}

// readCount reads a whole number. Separators of thousands may be in it.
func readCount(name, text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(strings.NewReplacer(",", "", " ", "", "_", "").Replace(text), 10, 64)
	if err != nil {
		return nil, forebay.Invalid(name, "must be a whole number")
	}
	return &n, nil
}

// budgetFlags are the flags of commands for a budget.
const budgetFlags = " --daily-usd 5 --monthly-usd 100"
