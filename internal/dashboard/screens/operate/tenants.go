package operate

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

const tenantsPath = "/tenants"

// tenant is what the pages show of one.
type tenant struct{ forebay.Tenant }

// State is the word for whether its jobs start.
func (t tenant) State() string {
	if t.Paused {
		return "paused"
	}
	return "ready"
}

// Waits is how many jobs wait for its budget.
func (t tenant) Waits() string { return kit.AtLeast(t.Waiting, t.Waiting >= forebay.MaxBudgetWaiting) }

// Parts are the limits of its budget with their use.
func (t tenant) Parts() []budgetPart { return partsOf(t.Budget, t.Usage) }

// keyBudget is the budget of one of its keys.
type keyBudget struct{ forebay.KeyBudget }

// Waits is how many jobs wait for the budget.
func (k keyBudget) Waits() string {
	return kit.AtLeast(k.Waiting, k.Waiting >= forebay.MaxBudgetWaiting)
}

// Parts are the limits of the budget with their use.
func (k keyBudget) Parts() []budgetPart { return partsOf(k.Budget, k.Usage) }

type tenantsData struct {
	Tenants []tenant
	Total   int
	Next    string
	Name    string // only those with it in their names
}

// listTenants answers GET /tenants.
func listTenants(r *kit.Request) error {
	found, err := kit.Fetch[forebay.Page[forebay.Tenant]](r, "/v1/tenants", nil)
	if err != nil {
		return err
	}
	data := tenantsData{Name: r.Query("name")}
	items := slices.DeleteFunc(found.Items, func(t forebay.Tenant) bool { return !strings.Contains(t.Name, data.Name) })
	data.Total = len(items)
	rows, next, err := part(r, items)
	if err != nil {
		return err
	}
	data.Next = next
	for _, t := range rows {
		data.Tenants = append(data.Tenants, tenant{t})
	}
	return pages.Render(r, "tenants", kit.Page{Title: "Tenants", Section: tenantsPath, Data: data, Commands: []string{"forebay tenants list"}})
}

type tenantData struct {
	tenant
	KeyBudgets  []keyBudget
	Budgets     map[string]string // fields of the form
	OfBudget    kit.Version
	Concurrent  string // field of the form
	OfConcurr   kit.Version
	Problem     string
	BudgetOpen  bool // the form that Problem is about
	ConcurrOpen bool
}

// tenantOf returns a tenant. The list tells of it without counting what its limits are about,
// which takes a while where there is much.
func tenantOf(r *kit.Request) (forebay.Tenant, error) {
	name := r.PathValue("name")
	list, err := r.Client.Tenants(r.Context())
	if err != nil {
		return forebay.Tenant{}, err
	}
	if i := slices.IndexFunc(list, func(t forebay.Tenant) bool { return t.Name == name }); i >= 0 {
		return list[i], nil
	}
	return r.Client.Tenant(r.Context(), name)
}

// showTenant answers GET /tenants/{name}.
func showTenant(r *kit.Request) error {
	t, err := tenantOf(r)
	if err != nil {
		return err
	}
	return renderTenant(r, t, func(*tenantData) int { return 0 })
}

// maxKeyBudgets is how many budgets of keys the page of a tenant shows.
const maxKeyBudgets = 50

func renderTenant(r *kit.Request, t forebay.Tenant, change func(*tenantData) (status int)) error {
	data := tenantData{tenant: tenant{t}, Budgets: textsOf(&t.Budget), OfBudget: budgetVersion(t.ETag, &t.Budget),
		Concurrent: strconv.Itoa(t.Concurrency), OfConcurr: concurrencyVersion(t)}
	for _, k := range t.Keys[:min(len(t.Keys), maxKeyBudgets)] {
		data.KeyBudgets = append(data.KeyBudgets, keyBudget{k})
	}
	status := change(&data)
	commands := []string{"forebay tenants show " + t.Name}
	if r.May("admin") {
		commands = append(commands, "forebay tenants pause "+t.Name, "forebay tenants resume "+t.Name,
			"forebay tenants set-budget "+t.Name+budgetFlags, "forebay tenants set-concurrency "+t.Name+" 8")
	}
	return pages.Render(r, "tenant", kit.Page{Title: "Tenant " + t.Name, Section: tenantsPath, Data: data, Commands: commands, Status: status, Still: status != 0})
}

func tenantAct(r *kit.Request, change func(ctx context.Context, name string) (forebay.Tenant, error), notice string) error {
	name := r.PathValue("name")
	if _, err := change(r.Context(), name); err != nil {
		return err
	}
	return r.Done(kit.Path("tenants", name), notice)
}

func pauseTenant(r *kit.Request) error {
	return tenantAct(r, r.Client.PauseTenant, "Paused. Its calls in flight finish; its jobs are taken in and wait.")
}

func resumeTenant(r *kit.Request) error {
	return tenantAct(r, r.Client.ResumeTenant, "Resumed. Its jobs start again.")
}

// concurrencyVersion is what the form shows of a tenant's concurrency.
func concurrencyVersion(t forebay.Tenant) kit.Version {
	return kit.VersionOf(t.ETag, kit.Value{Name: "concurrency", Text: strconv.Itoa(t.Concurrency)})
}

// setTenantBudget answers POST /tenants/{name}/budget.
func setTenantBudget(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	name, texts, version := r.PathValue("name"), typedBudget(form), kit.ReadVersion(form)
	budget, err := readBudget(texts)
	if err == nil {
		_, err = r.Client.SetBudget(r.On(version), name, budget)
	}
	return tenantSet(r, err, "The budget is set.", func(d *tenantData) (status int) {
		d.Budgets, d.BudgetOpen = texts, true
		status, d.Problem, d.OfBudget = version.Again(err, d.OfBudget)
		return status
	})
}

// setConcurrency answers POST /tenants/{name}/concurrency.
func setConcurrency(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	name, typed, version := r.PathValue("name"), strings.TrimSpace(form.Get("concurrency")), kit.ReadVersion(form)
	most, err := readCount("concurrency", typed)
	if err == nil && (most == nil || *most < 0 || *most > forebay.MaxTenantConcurrency) {
		err = forebay.Invalid("concurrency", "goes from 0, which is no limit, to %d", forebay.MaxTenantConcurrency)
	}
	if err == nil {
		_, err = r.Client.SetConcurrency(r.On(version), name, int(*most))
	}
	return tenantSet(r, err, "The concurrency is set.", func(d *tenantData) (status int) {
		d.Concurrent, d.ConcurrOpen = typed, true
		status, d.Problem, d.OfConcurr = version.Again(err, d.OfConcurr)
		return status
	})
}

// tenantSet ends a change of a tenant's settings. If it was refused, the page shows what the
// tenant has now, with what again makes of it.
func tenantSet(r *kit.Request, err error, notice string, again func(*tenantData) (status int)) error {
	if err == nil {
		return r.Done(tenantsPath+"/"+url.PathEscape(r.PathValue("name")), notice)
	}
	if !refused(err) {
		return err
	}
	t, fetching := tenantOf(r)
	if fetching != nil {
		return fetching
	}
	return renderTenant(r, t, again)
}
