package overview

import (
	"cmp"
	"embed"
	"net/url"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

//go:embed templates
var templates embed.FS

var pages = kit.Parse(templates, "templates")

// Routes are the pages of this package.
func Routes() []kit.Route {
	return []kit.Route{
		kit.Get("/", now),
		kit.Get("/backlog", backlog),
		kit.Get("/calls", calls),
		kit.Get("/processes", processes),
		kit.Get("/find", find),
	}
}

// Need is something that somebody should look at, with the way out of it.
type Need struct {
	Bad        bool // else it may wait
	What       string
	Link, Name string
	Command    string // that does it
}

type nowData struct {
	Needs     []Need
	Sums      sums
	Queues    []forebay.QueueInfo
	Backlog   forebay.Backlog
	Calls     forebay.RunningCalls
	Used      *forebay.UsageRow // in the last 24 hours; nil: nothing
	Simulated bool              // all deployments are
	All       bool
}

// sums are counts over all queues.
type sums struct {
	Active, Scheduled, Locked, Retrying, DeadLetter, Quarantine int64
	Capped                                                      bool
}

// now answers GET /.
func now(r *kit.Request) error {
	d := nowData{All: r.AllTenants()}
	all := allTenants(d.All)
	queues, err := kit.Fetch[forebay.Page[forebay.QueueInfo]](r, "/v1/queues", jobQueues(all))
	if err != nil {
		return err
	}
	d.Queues = queues.Items
	for _, q := range d.Queues {
		d.Sums.add(q)
	}
	d.Needs = append(d.Needs, needsOfQueues(d.Queues, flagOfAll(d.All))...)
	if !r.Operates() { // they know of it, and somebody else mends it
		for i := range d.Needs {
			d.Needs[i].Link, d.Needs[i].Command = "", ""
		}
	}
	if d.Backlog, err = r.Client.Backlog(r.Context(), d.All); err != nil {
		return err
	}
	if d.Calls, err = r.Client.Calls(r.Context(), forebay.CallFilter{AllTenants: d.All, Limit: 1}); err != nil {
		return err
	}
	usage, err := kit.Fetch[forebay.UsageReport](r, "/v1/reports/usage", all)
	if err != nil {
		return err
	}
	if len(usage.Rows) > 0 {
		d.Used = &usage.Rows[0]
	}
	if r.Operator() {
		if err := d.operators(r); err != nil {
			return err
		}
	}
	if r.Operates() {
		webhooks, err := r.Client.Webhooks(r.Context())
		if err != nil {
			return err
		}
		d.Needs = append(d.Needs, needsOfWebhooks(webhooks)...)
	}
	slices.SortStableFunc(d.Needs, func(a, b Need) int { return cmp.Compare(worst(b), worst(a)) })
	commands := []string{"forebay queues list" + flagOfAll(d.All), "forebay backlog" + flagOfAll(d.All)}
	if r.Operator() {
		commands = append(commands, "forebay deployments list")
	}
	return pages.Render(r, "now", kit.Page{Title: "Now", Section: "/", Data: d, Commands: commands})
}

func worst(n Need) int {
	if n.Bad {
		return 1
	}
	return 0
}

func allTenants(all bool) url.Values {
	if all {
		return kit.Values("all_tenants", "true")
	}
	return url.Values{}
}

// jobQueues adds to a query that only queues for jobs are wanted.
func jobQueues(query url.Values) url.Values {
	with := url.Values{"kind": {"jobs"}}
	for name, values := range query {
		with[name] = values
	}
	return with
}

func (s *sums) add(q forebay.QueueInfo) {
	s.Active, s.Scheduled, s.Locked = s.Active+q.Active, s.Scheduled+q.Scheduled, s.Locked+q.Locked
	s.Retrying, s.DeadLetter, s.Quarantine = s.Retrying+q.Retrying, s.DeadLetter+q.DeadLetter, s.Quarantine+q.Quarantine
	s.Capped = s.Capped || q.CountsCapped
}

// operators adds what is of no single tenant.
func (d *nowData) operators(r *kit.Request) error {
	deployments, err := r.Client.Deployments(r.Context())
	if err != nil {
		return err
	}
	d.Simulated = len(deployments) > 0
	for _, deployment := range deployments {
		d.Simulated = d.Simulated && (deployment.Simulated || deployment.Kind != forebay.DeploymentModel)
	}
	d.Needs = append(d.Needs, needsOfDeployments(deployments)...)
	list, err := r.Client.Processes(r.Context())
	if err != nil {
		return err
	}
	d.Needs = append(d.Needs, needsOfProcesses(list)...)
	tenants, err := r.Client.Tenants(r.Context())
	if err != nil {
		return err
	}
	d.Needs = append(d.Needs, needsOfTenants(tenants)...)
	return nil
}

// needsOfQueues is about queues. ofAll is the flag of commands for the jobs of every tenant; "":
// one tenant's are shown.
func needsOfQueues(queues []forebay.QueueInfo, ofAll string) (needs []Need) {
	for _, q := range queues {
		if q.Paused {
			needs = append(needs, Need{What: "Queue " + q.Name + " is paused" + waiting(q.Active) + ".",
				Link: kit.Path("queues", q.Name), Name: "Resume it", Command: "forebay queues resume " + q.Name})
		}
		if q.DeadLetter > 0 {
			needs = append(needs, Need{Bad: true, What: kit.Plural(q.DeadLetter, "job") + plus(q) + " of queue " + q.Name + " cannot succeed as they are: dead letters.",
				Link: "/dead-letters?queue=" + url.QueryEscape(q.Name), Name: "Look, mend, redrive", Command: "forebay dlq list --queue " + q.Name + ofAll})
		}
		if q.Quarantine > 0 {
			needs = append(needs, Need{Bad: true, What: kit.Plural(q.Quarantine, "job") + plus(q) + " of queue " + q.Name + " stand in quarantine.",
				Link: "/quarantine?queue=" + url.QueryEscape(q.Name), Name: "Look, mend, redrive", Command: "forebay quarantine list --queue " + q.Name + ofAll})
		}
	}
	return needs
}

func plus(q forebay.QueueInfo) string {
	if q.CountsCapped {
		return " or more"
	}
	return ""
}

func waiting(n int64) string {
	if n == 0 {
		return ""
	}
	return ", and " + kit.Plural(n, "job") + " in it could run"
}

func needsOfDeployments(deployments []forebay.Deployment) (needs []Need) {
	for _, d := range deployments {
		link := kit.Path("deployments", d.Name)
		switch {
		case d.Breaker == forebay.BreakerOpen && d.BreakerReason != "":
			needs = append(needs, Need{Bad: true, What: "Deployment " + d.Name + " turns every call away: " + d.BreakerReason + ".",
				Link: link, Name: "See why, let one call try", Command: "forebay deployments show " + d.Name})
		case d.Breaker == forebay.BreakerOpen:
			needs = append(needs, Need{Bad: true, What: "Calls of deployment " + d.Name + " fail: its breaker is open.",
				Link: link, Name: "See why, let one call try", Command: "forebay deployments show " + d.Name})
		case d.Breaker == forebay.BreakerHalfOpen:
			needs = append(needs, Need{What: "Deployment " + d.Name + " is tried by single calls: its breaker is half-open.", Link: link, Name: "Watch it"})
		}
		if d.Paused {
			needs = append(needs, Need{What: "Deployment " + d.Name + " is paused by an operator.", Link: link, Name: "Resume it", Command: "forebay deployments resume " + d.Name})
		}
		if d.PausedUntil != nil && time.Until(*d.PausedUntil) > time.Minute {
			needs = append(needs, Need{What: "The provider of " + d.Name + " asked for a pause of " + kit.Duration(time.Until(*d.PausedUntil)) + ".", Link: link, Name: "Watch it"})
		}
	}
	return needs
}

func needsOfProcesses(list []forebay.Process) (needs []Need) {
	for _, p := range list {
		if p.State == forebay.ProcessGone {
			needs = append(needs, Need{Bad: true, What: "A process on " + p.Host + " was last heard of " + kit.Duration(time.Since(p.SeenAt)) + " ago. What it called goes to others when the locks end.",
				Link: "/processes", Name: "Processes", Command: "forebay processes"})
		}
	}
	return needs
}

// nearEnd is the share of a budget, in percent, from which on it needs somebody.
const nearEnd = 80

func needsOfTenants(tenants []forebay.Tenant) (needs []Need) {
	for _, t := range tenants {
		link := kit.Path("tenants", t.Name)
		if t.Paused {
			needs = append(needs, Need{What: "Tenant " + t.Name + " is paused.", Link: link, Name: "Resume it", Command: "forebay tenants resume " + t.Name})
		}
		if used := usedMost(t.BudgetState); used.percent >= nearEnd || t.Waiting > 0 {
			n := Need{What: "Tenant " + t.Name + " has used " + used.String() + ".",
				Link: link, Name: "Raise the budget", Command: "forebay tenants show " + t.Name}
			if t.Waiting > 0 {
				n.Bad, n.What = true, n.What+" "+kit.Plural(t.Waiting, "job")+" wait for it."
			}
			needs = append(needs, n)
		}
		for _, k := range t.Keys {
			if used := usedMost(k.BudgetState); used.percent >= nearEnd || k.Waiting > 0 {
				needs = append(needs, Need{Bad: k.Waiting > 0, What: "The key " + k.KeyID + " of tenant " + t.Name + " has used " + used.String() + ".",
					Link: kit.Path("keys", k.KeyID), Name: "Raise the budget"})
			}
		}
	}
	return needs
}

// share is how much of a budget is used or held.
type share struct {
	percent int64
	period  forebay.BudgetPeriod // ""; nothing is
}

func (s share) String() string {
	text := kit.Number(s.percent) + " % of its budget"
	if s.period != "" {
		text += " of the " + string(s.period)
	}
	return text
}

// usedMost is the share in the period where that is most. A job may wait although it is small: the
// budget may be 0, or less than the job needs.
func usedMost(b forebay.BudgetState) (most share) {
	for _, u := range b.Usage {
		tokens, usd := b.Budget.DailyTokens, b.Budget.DailyUSD
		if u.Period == forebay.BudgetMonth {
			tokens, usd = b.Budget.MonthlyTokens, b.Budget.MonthlyUSD
		}
		if tokens != nil && *tokens > 0 {
			if p := int64(100 * float64(u.Tokens+u.HeldTokens) / float64(*tokens)); p > most.percent {
				most = share{p, u.Period}
			}
		}
		if usd != nil && *usd > 0 {
			if p := int64(100 * float64(u.CostUSD+u.HeldUSD) / float64(*usd)); p > most.percent {
				most = share{p, u.Period}
			}
		}
	}
	return most
}

func needsOfWebhooks(list []forebay.Webhook) (needs []Need) {
	for _, w := range list {
		n := Need{Link: kit.Path("webhooks", w.Name), Name: "See its tries", Command: "forebay webhooks show " + w.Name}
		switch {
		case w.DisabledAt != nil && w.DisabledReason != forebay.WebhookDisabled:
			n.Bad, n.What = true, "Webhook "+w.Name+" delivers nothing any more: "+w.DisabledReason+"."
		case w.FailingSince != nil && w.DisabledAt == nil:
			n.What = "Webhook " + w.Name + " has delivered nothing for " + kit.Duration(time.Since(*w.FailingSince)) + "."
		case w.DeadLetters > 0:
			n.What, n.Name = "Webhook "+w.Name+" has given up "+kit.Plural(w.DeadLetters, "event")+".", "Redeliver"
		default:
			continue
		}
		needs = append(needs, n)
	}
	return needs
}
