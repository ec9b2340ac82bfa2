package operate

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

const keysPath = "/keys"

// key is what the pages show of an API key.
type key struct {
	forebay.APIKey
	Own bool // the one that signed in
}

// State is the word for whether it is of use.
func (k key) State() string {
	switch {
	case k.RevokedAt != nil:
		return "revoked"
	case k.ExpiresAt != nil && !k.ExpiresAt.After(time.Now()):
		return "expired"
	}
	return "live"
}

// Live reports whether the key opens anything.
func (k key) Live() bool { return k.State() == "live" }

// Parts are the limits of its budget with their use.
func (k key) Parts() []budgetPart {
	if k.Budget == nil {
		return nil
	}
	return partsOf(*k.Budget, k.BudgetUsage)
}

// scopeChoice is a scope in the form of a new key.
type scopeChoice struct {
	Scope   forebay.Scope
	About   string
	Checked bool
}

var aboutScopes = map[forebay.Scope]string{
	forebay.ScopeSubmit:  "submit and cancel jobs, send messages",
	forebay.ScopeRead:    "read jobs, results, events and reports of the tenant",
	forebay.ScopeOperate: "dead letters, queues of messages, receive and settle",
	forebay.ScopeView:    "see what operators see of every tenant, but no payloads of others; change nothing",
	forebay.ScopePayload: "open inputs of jobs, and payloads of every tenant that may be viewed",
	forebay.ScopeAdmin:   "all of these, deployments, tenants, keys",
	forebay.ScopeSend:    "send messages; included in submit and manage",
	forebay.ScopeListen:  "receive, settle and peek at messages; included in operate and manage",
	forebay.ScopeManage:  "make, change and delete queues, topics, subscriptions and rules; send and listen",
}

// newKey is the form of a new key.
type newKey struct {
	Tenant string
	Scopes []scopeChoice
	// Entities are queues and topics, a line each.
	Entities string
	Expires  string
	Budgets  map[string]string
	Problem  string
}

func emptyKey(tenant string) newKey {
	form := newKey{Tenant: tenant, Budgets: textsOf(nil)}
	for _, s := range forebay.Scopes {
		form.Scopes = append(form.Scopes, scopeChoice{s, aboutScopes[s], s == forebay.ScopeSubmit || s == forebay.ScopeRead})
	}
	return form
}

type keysData struct {
	Keys  []key
	Total int
	Next  string
	Of    string // only of this tenant
	All   bool   // those that are of no use any more too
	New   newKey
}

// listKeys answers GET /keys.
func listKeys(r *kit.Request) error { return renderKeys(r, 0, emptyKey(r.TenantName())) }

func renderKeys(r *kit.Request, status int, form newKey) error {
	found, err := kit.Fetch[forebay.Page[forebay.APIKey]](r, "/v1/keys", nil)
	if err != nil {
		return err
	}
	data := keysData{Of: r.Query("of"), All: r.Query("show") == "all", New: form}
	var keys []key
	for _, k := range slices.Backward(found.Items) { // newest first
		one := key{k, k.ID == r.Caller.KeyID}
		if (data.Of == "" || k.Tenant == data.Of) && (data.All || one.Live()) {
			keys = append(keys, one)
		}
	}
	data.Total = len(keys)
	if data.Keys, data.Next, err = part(r, keys); err != nil {
		return err
	}
	commands := []string{"forebay keys list"}
	if r.May("admin") {
		commands = append(commands, "forebay keys create --tenant acme --scopes submit,read --expires 90d")
	}
	return pages.Render(r, "keys", kit.Page{Title: "API keys", Section: keysPath, Data: data, Commands: commands, Status: status, Still: status != 0})
}

// createKey answers POST /keys. The page of the answer is the only place that shows the key.
func createKey(r *kit.Request) error {
	values, err := r.Form()
	if err != nil {
		return err
	}
	typed := emptyKey(strings.TrimSpace(values.Get("tenant")))
	typed.Entities, typed.Expires, typed.Budgets = values.Get("entities"), values.Get("expires"), typedBudget(values)
	for i, s := range typed.Scopes {
		typed.Scopes[i].Checked = slices.Contains(values["scopes"], string(s.Scope))
	}
	body, err := typed.request(values["scopes"])
	var made forebay.APIKey
	if err == nil {
		err = r.Client.Call(r.Context(), http.MethodPost, "/v1/keys", nil, body, &made)
	}
	if err != nil {
		if refused(err) {
			typed.Problem = kit.Explain(err)
			return renderKeys(r, statusRefused, typed)
		}
		return err
	}
	return pages.Render(r, "key-made", kit.Page{Title: "A new API key", Section: keysPath, Data: key{APIKey: made}, Status: http.StatusCreated, Still: true})
}

// keyRequest is the body of POST /v1/keys.
type keyRequest struct {
	Tenant    string          `json:"tenant"`
	Scopes    []string        `json:"scopes"`
	Entities  []string        `json:"entities,omitempty"`
	ExpiresAt *time.Time      `json:"expires_at,omitempty"`
	Budget    *forebay.Budget `json:"budget,omitempty"`
}

func (f newKey) request(scopes []string) (keyRequest, error) {
	body := keyRequest{Tenant: f.Tenant, Scopes: scopes, Entities: strings.Fields(f.Entities)}
	if len(scopes) == 0 {
		return body, forebay.Invalid("scopes", "choose one at least")
	}
	if !forebay.ValidName(f.Tenant) {
		return body, forebay.Invalid("tenant", "must be 1 to %d of a-z A-Z 0-9 . _ - and begin with a letter or digit", forebay.MaxNameBytes)
	}
	if f.Expires != "" {
		at, err := readTime(f.Expires)
		if err != nil {
			return body, forebay.Invalid("expires", "must be a time, such as 2030-01-02T15:04")
		}
		body.ExpiresAt = &at
	}
	budget, err := readBudget(f.Budgets)
	if err == nil && !budget.Empty() {
		body.Budget = &budget
	}
	return body, err
}

type keyData struct {
	key
	kit.Version
	Budgets map[string]string
	Problem string
}

// keyOf returns a key. The API has no address of a single one.
func keyOf(r *kit.Request) (key, error) {
	found, err := kit.Fetch[forebay.Page[forebay.APIKey]](r, "/v1/keys", nil)
	if err != nil {
		return key{}, err
	}
	i := slices.IndexFunc(found.Items, func(k forebay.APIKey) bool { return k.ID == r.PathValue("id") })
	if i < 0 {
		return key{}, forebay.ErrNotFound
	}
	return key{found.Items[i], found.Items[i].ID == r.Caller.KeyID}, nil
}

// showKey answers GET /keys/{id}.
func showKey(r *kit.Request) error {
	k, err := keyOf(r)
	if err != nil {
		return err
	}
	return renderKey(r, 0, keyData{key: k, Budgets: textsOf(k.Budget), Version: budgetVersion(k.ETag, k.Budget)})
}

func renderKey(r *kit.Request, status int, data keyData) error {
	commands := []string{"forebay keys list"}
	if r.May("admin") {
		commands = append(commands, "forebay keys set-budget "+data.ID+budgetFlags, "forebay keys revoke "+data.ID)
	}
	return pages.Render(r, "key", kit.Page{Title: "API key", Section: keysPath, Data: data, Commands: commands, Status: status, Still: status != 0})
}

// setKeyBudget answers POST /keys/{id}/budget.
func setKeyBudget(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	texts, version := typedBudget(form), kit.ReadVersion(form)
	budget, err := readBudget(texts)
	if err == nil {
		_, err = r.Client.SetKeyBudget(r.On(version), r.PathValue("id"), budget)
	}
	if err == nil {
		return r.Done(keysPath+"/"+url.PathEscape(r.PathValue("id")), "The budget is set. It counts jobs that are submitted from now on.")
	}
	if !refused(err) {
		return err
	}
	k, fetching := keyOf(r)
	if fetching != nil {
		return fetching
	}
	status, problem, version := version.Again(err, budgetVersion(k.ETag, k.Budget))
	return renderKey(r, status, keyData{key: k, Version: version, Budgets: texts, Problem: problem})
}

// revokeKey answers POST /keys/{id}/revoke: the form has the id typed.
func revokeKey(r *kit.Request) error {
	id := r.PathValue("id")
	if err := confirmed(r, id); err != nil {
		return err
	}
	if err := r.Client.RevokeKey(r.Context(), id); err != nil {
		return err
	}
	return r.Done(keysPath, "The key "+id+" is revoked.")
}
