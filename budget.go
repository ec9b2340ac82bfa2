package forebay

import "time"

// Budget is what a tenant or an API key may use in a calendar day and a calendar month of UTC. A
// nil field is no limit.
type Budget struct {
	DailyUSD      *Money `json:"daily_usd,omitempty" doc:"US dollars a day"`
	MonthlyUSD    *Money `json:"monthly_usd,omitempty" doc:"US dollars a month"`
	DailyTokens   *int64 `json:"daily_tokens,omitempty" doc:"tokens a day, input and output together"`
	MonthlyTokens *int64 `json:"monthly_tokens,omitempty" doc:"tokens a month"`
}

// MaxBudgetWaiting is how far the jobs are counted that wait for a budget.
const MaxBudgetWaiting = 10_000

// Limits on budgets.
const (
	MaxBudgetTokens = 1 << 50
	MaxBudgetUSD    = 1_000_000_000 * Dollar
)

// Empty reports whether the budget limits nothing.
func (b Budget) Empty() bool { return b == Budget{} }

// Check reports what is wrong with the budget, as an error about a part of field, or nil.
func (b Budget) Check(field string) error {
	for name, usd := range map[string]*Money{"daily_usd": b.DailyUSD, "monthly_usd": b.MonthlyUSD} {
		if usd != nil && (*usd < 0 || *usd > MaxBudgetUSD) {
			return Invalid(field+name, "goes from 0 to a billion US dollars")
		}
	}
	for name, tokens := range map[string]*int64{"daily_tokens": b.DailyTokens, "monthly_tokens": b.MonthlyTokens} {
		if tokens != nil && (*tokens < 0 || *tokens > MaxBudgetTokens) {
			return Invalid(field+name, "goes from 0 to %d tokens", int64(MaxBudgetTokens))
		}
	}
	return nil
}

// BudgetPeriod is a kind of period.
type BudgetPeriod string

const (
	BudgetDay   BudgetPeriod = "day"
	BudgetMonth BudgetPeriod = "month"
)

// Start returns the beginning of the period that contains the time.
func (p BudgetPeriod) Start(at time.Time) time.Time {
	year, month, day := at.UTC().Date()
	if p == BudgetMonth {
		day = 1
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// End is the beginning of the next period.
func (p BudgetPeriod) End(at time.Time) time.Time {
	if p == BudgetMonth {
		return p.Start(at).AddDate(0, 1, 0)
	}
	return p.Start(at).AddDate(0, 0, 1)
}

// BudgetUse is what was used in a period, since the budget exists, and what is reserved for calls
// under way.
type BudgetUse struct {
	Period     BudgetPeriod `json:"period" enum:"day,month"`
	StartsAt   time.Time    `json:"starts_at"`
	EndsAt     time.Time    `json:"ends_at"`
	Tokens     int64        `json:"tokens"`
	CostUSD    Money        `json:"cost_usd"`
	HeldTokens int64        `json:"held_tokens"`
	HeldUSD    Money        `json:"held_usd"`
}

// BudgetState is a budget with its use.
type BudgetState struct {
	Budget    Budget      `json:"budget"`
	Usage     []BudgetUse `json:"usage" doc:"of the current day and month"`
	Waiting   int64       `json:"waiting" doc:"jobs that wait for it, counted up to 10,000"`
	UpdatedAt *time.Time  `json:"updated_at" doc:"null: it was never set"`
	SetBy     string      `json:"set_by,omitempty" doc:"id of an API key, local, or configuration"`
}

// KeyBudget is the budget of an API key.
type KeyBudget struct {
	KeyID string `json:"key_id"`
	BudgetState
}

// Tenant is a tenant with its budget and those of its keys.
type Tenant struct {
	Name        string `json:"name"`
	Paused      bool   `json:"paused" doc:"none of its jobs starts"`
	Concurrency int    `json:"concurrency" doc:"how many of its jobs run at once; 0: as many as there are workers"`
	Running     *int64 `json:"running,omitempty" doc:"how many do; only where that is limited"`
	BudgetState
	Keys   []KeyBudget `json:"keys" doc:"its API keys that have a budget"`
	Limits []LimitUse  `json:"limits,omitempty" doc:"what it may have and do, and what is used; not told in lists"`
	Tagged
}

// MaxTenantConcurrency is the highest concurrency limit that a tenant can have.
const MaxTenantConcurrency = 1_000_000

// TenantSettings is what can be set for a tenant. A nil field leaves the setting as it is.
type TenantSettings struct {
	Budget      *Budget `json:"budget,omitempty" doc:"it replaces the one before: a limit that is left out is none"`
	Concurrency *int    `json:"concurrency,omitempty" doc:"how many of its jobs run at once, over all queues and processes; 0: as many as there are workers"`
	// Limits replace all earlier limits.
	Limits *TenantLimits `json:"limits,omitempty" doc:"they replace those before: a limit that is left out is the default, 0 is none"`
}

// Check reports what is wrong with the settings, or nil.
func (s TenantSettings) Check() error {
	if s.Budget == nil && s.Concurrency == nil && s.Limits == nil {
		return Invalid("", "say what to set: budget, concurrency or limits")
	}
	if s.Limits != nil {
		if err := s.Limits.Check("limits."); err != nil {
			return err
		}
	}
	if n := s.Concurrency; n != nil && (*n < 0 || *n > MaxTenantConcurrency) {
		return Invalid("concurrency", "goes from 0, which is no limit, to %d", MaxTenantConcurrency)
	}
	if s.Budget == nil {
		return nil
	}
	return s.Budget.Check("budget.")
}

// BudgetEvent says that most of a budget is used, or that a job does not fit into the rest. Each
// is published once in a period, to the topic of the tenant's job events.
type BudgetEvent struct {
	Type      EventType    `json:"type"`
	Tenant    string       `json:"tenant"`
	KeyID     string       `json:"key_id,omitempty" doc:"empty: it is the budget of the whole tenant"`
	Period    BudgetPeriod `json:"period"`
	StartsAt  time.Time    `json:"starts_at"`
	EndsAt    time.Time    `json:"ends_at"`
	Timestamp time.Time    `json:"timestamp"`
	Tokens    int64        `json:"tokens" doc:"used in the period"`
	CostUSD   Money        `json:"cost_usd"`
	Budget    Budget       `json:"budget"`
}
