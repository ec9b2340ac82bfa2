package messages

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// listTopics answers GET /topics.
func listTopics(r *kit.Request) error { return topicsPage(r, newSettings(kindTopic), 0) }

type topicsData struct {
	window[forebay.Topic]
	New settingsForm
}

func topicsPage(r *kit.Request, form settingsForm, status int) error {
	topics, err := kit.Fetch[forebay.Page[forebay.Topic]](r, "/v1/topics", nil)
	if err != nil {
		return err
	}
	return pages.Render(r, "topics", kit.Page{Title: "Topics", Section: "/topics", Data: topicsData{windowOf(r, topics.Items, func(t forebay.Topic) string { return t.Name }), form},
		Status: status, Still: status != 0, Commands: []string{"forebay topics list"}})
}

type topicData struct {
	Topic         forebay.Topic
	Subscriptions window[forebay.Subscription]
	Form          messageForm
	Settings      settingsForm
	New           settingsForm // of a subscription
	refused       *stateForm   // nil: none
	Problem       string
}

// showTopic answers GET /topics/{topic}.
func showTopic(r *kit.Request) error { return topicPage(r, refusal{}) }

// topicPage shows a topic. The settings of a refusal are its own, or those of a new subscription.
func topicPage(r *kit.Request, with refusal) error {
	name := r.PathValue("topic")
	topic, err := kit.Fetch[forebay.Topic](r, "/v1"+kit.Path("topics", name), nil)
	if err != nil {
		return err
	}
	subs, err := kit.Fetch[forebay.Page[forebay.Subscription]](r, "/v1"+kit.Path("topics", name, "subscriptions"), nil)
	if err != nil {
		return err
	}
	data := topicData{topic, windowOf(r, subs.Items, func(s forebay.Subscription) string { return s.Name }), with.Message, settingsOfTopic(topic), newSettings(kindSubscription), with.State, with.Problem}
	switch with.Settings.Kind {
	case kindTopic:
		data.Settings = with.Settings
	case kindSubscription:
		data.New = with.Settings
	}
	return pages.Render(r, "topic", kit.Page{Title: "Topic " + name, Section: "/topics", Data: data, Status: with.Status, Still: with.Status != 0,
		Commands: []string{"forebay topics show " + kit.Shell(name), "forebay subscriptions list " + kit.Shell(name)}})
}

// showSubscription answers GET /topics/{topic}/subscriptions/{subscription}.
func showSubscription(r *kit.Request) error { return subscriptionPage(r, refusal{}) }

func subscriptionPage(r *kit.Request, with refusal) error {
	e := entityOf(r)
	sub, err := kit.Fetch[forebay.Subscription](r, "/v1"+e.path(), nil)
	if err != nil {
		return err
	}
	rules, err := kit.Fetch[forebay.Page[forebay.Rule]](r, "/v1"+e.path("rules"), nil)
	if err != nil {
		return err
	}
	if with.Settings.Kind == "" {
		with.Settings = settingsOfSubscription(sub)
	}
	data := boxData{Entity: e, Queue: sub.MessageQueue, Rules: rules.Items, Rule: with.Rule, Settings: with.Settings, refused: with.State, Problem: with.Problem}
	if err := data.peek(r); err != nil {
		return err
	}
	return pages.Render(r, "subscription", kit.Page{Title: "Subscription " + e.Subscription, Section: "/topics", Data: data, Status: with.Status, Still: with.Status != 0,
		Commands: []string{"forebay subscriptions show " + kit.Shell(e.Topic) + " " + kit.Shell(e.Subscription), "forebay rules list " + kit.Shell(e.Topic) + " " + kit.Shell(e.Subscription),
			"forebay messages peek " + kit.Shell(e.subqueue(data.Dead))}})
}

// Filter describes a rule's filter in one line.
func (boxData) Filter(s forebay.RuleSettings) string {
	switch {
	case s.SQLFilter != "":
		return s.SQLFilter
	case s.CorrelationFilter != nil:
		data, err := json.Marshal(s.CorrelationFilter)
		if err != nil { // it came as JSON
			return ""
		}
		return string(data)
	case s.BooleanFilter != nil && !*s.BooleanFilter:
		return "selects no message"
	}
	return "selects every message"
}

// ruleForm is a rule as somebody types it.
type ruleForm struct {
	Name, Kind, Filter, Action string
}

// The kinds of filters in forms.
const (
	kindAll         = "all"
	kindSQL         = "sql"
	kindCorrelation = "correlation"
	kindNone        = "none"
)

func (f ruleForm) settings() (s forebay.RuleSettings, err error) {
	s.SQLAction = f.Action
	switch f.Kind {
	case kindSQL:
		if s.SQLFilter = f.Filter; f.Filter == "" {
			err = forebay.Invalid("filter", "is missing: a condition such as quantity > 10")
		}
	case kindCorrelation:
		s.CorrelationFilter = &forebay.CorrelationFilter{}
		d := json.NewDecoder(strings.NewReader(f.Filter))
		d.DisallowUnknownFields()
		if d.Decode(s.CorrelationFilter) != nil {
			err = forebay.Invalid("filter", `must be a JSON object of properties, such as {"subject":"new"}`)
		}
	case kindNone:
		s.BooleanFilter = new(bool)
	case kindAll:
	default:
		err = forebay.Invalid("kind", "is none of all, sql, correlation and none")
	}
	return s, err
}

// addRule answers POST …/rules. It never replaces a rule.
func addRule(r *kit.Request) error {
	values, err := r.Form()
	if err != nil {
		return err
	}
	e := entityOf(r)
	form := ruleForm{strings.TrimSpace(values.Get("name")), values.Get("kind"), strings.TrimSpace(plainLines(values.Get("filter"))), strings.TrimSpace(plainLines(values.Get("action")))}
	settings, err := form.settings()
	if form.Name == "" && err == nil {
		err = forebay.Invalid("name", "is missing")
	}
	if err == nil {
		_, err = r.Client.PutRule(r.IfNew(), e.Topic, e.Subscription, form.Name, settings)
	}
	if kit.Changed(err) {
		err = forebay.Errorf(forebay.CodeConflict, "there is a rule %s already; remove it first", form.Name)
	}
	if status, problem, ok := refused(err); ok {
		return subscriptionPage(r, refusal{Rule: form, Problem: problem, Status: status})
	}
	if err != nil {
		return err
	}
	return r.Done(e.Page(), "The rule "+form.Name+" applies to what is sent from now on.")
}

// confirmRemoveRule answers GET …/rules/{rule}/remove.
func confirmRemoveRule(r *kit.Request) error { return removeRulePage(r, "", 0) }

func removeRulePage(r *kit.Request, problem string, status int) error {
	e, rule := entityOf(r), r.PathValue("rule")
	known, err := kit.Fetch[forebay.Rule](r, "/v1"+e.path("rules", rule), nil)
	if err != nil {
		return err
	}
	return pages.Render(r, "confirm", kit.Page{Title: "Remove the rule " + rule, Section: "/topics", Still: true, Status: status, Data: confirmation{
		Text: "The rule of " + e.Name + " with the filter: " + boxData{}.Filter(known.RuleSettings) + ". What it has selected stays. A subscription without any rule gets nothing.",
		Type: rule, Action: e.Page("rules", rule, "remove"), Button: "Remove the rule", Back: e.Page(), Problem: problem, Scope: string(forebay.ScopeManage),
		Hidden: map[string]string{"etag": known.ETag},
	}, Commands: []string{"forebay rules delete " + kit.Shell(e.Topic) + " " + kit.Shell(e.Subscription) + " " + kit.Shell(rule)}})
}

// removeRule answers POST …/rules/{rule}/remove.
func removeRule(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	e, rule := entityOf(r), r.PathValue("rule")
	if problem := typed(form.Get("confirm"), rule); problem != "" {
		return removeRulePage(r, problem, http.StatusUnprocessableEntity)
	}
	err = r.Client.DeleteRule(r.On(kit.ReadVersion(form)), e.Topic, e.Subscription, rule)
	if kit.Changed(err) {
		return removeRulePage(r, deleteChanged("rule"), http.StatusConflict)
	}
	if err != nil {
		return err
	}
	return r.Done(e.Page(), "The rule "+rule+" is removed.")
}

type testData struct {
	Topic        string
	Form         messageForm
	Filter       string // of a rule that no subscription has
	Subscription string
	Test         *forebay.RuleTest
	Problem      string
}

// Word is the result of a rule as a badge shows it.
func (testData) Word(result string) string { return strings.ReplaceAll(result, "_", " ") }

// testRules answers GET /topics/{topic}/test. It sends nothing.
func testRules(r *kit.Request) error {
	query := r.URL.Query()
	data := testData{Topic: r.PathValue("topic"), Form: readMessageForm(query), Filter: strings.TrimSpace(plainLines(query.Get("sql_filter"))), Subscription: query.Get("subscription")}
	status := 0
	form := data.Form
	form.Properties = "" // an address holds no lines
	m, err := form.message()
	if err == nil {
		m.Properties, err = parseProperties(data.Form.Properties, ";")
	}
	if err == nil {
		m.Body = nil
		req := forebay.RuleTestRequest{Message: m, Subscription: data.Subscription}
		if data.Filter != "" {
			req.Rule = &forebay.RuleSettings{SQLFilter: data.Filter}
		}
		var test forebay.RuleTest
		if test, err = r.Client.TestRules(r.Context(), data.Topic, req); err == nil {
			data.Test = &test
		}
	}
	if err != nil {
		var ok bool
		if status, data.Problem, ok = refused(err); !ok {
			return err
		}
	}
	return pages.Render(r, "test", kit.Page{Title: "Test the rules of " + data.Topic, Section: "/topics", Data: data, Status: status, Still: true,
		Commands: []string{"forebay rules test " + strings.Join(testFlags(data, query), " ")}})
}

// testFlags are the arguments of the command that tests the same.
func testFlags(d testData, query url.Values) []string {
	args := []string{kit.Shell(d.Topic)}
	if d.Subscription != "" {
		args = append(args, kit.Shell(d.Subscription))
	}
	for _, flag := range []string{"subject", "message_id", "session_id", "correlation_id", "to", "reply_to", "content_type"} {
		if value := query.Get(flag); value != "" {
			args = append(args, "--"+strings.ReplaceAll(flag, "_", "-"), kit.Shell(value))
		}
	}
	if p := d.Form.Properties; !strings.HasPrefix(strings.TrimSpace(p), "{") {
		for pair := range strings.SplitSeq(p, ";") {
			if strings.TrimSpace(pair) != "" {
				args = append(args, "--property", kit.Shell(strings.TrimSpace(pair)))
			}
		}
	}
	return args
}
