package messages

import (
	"net/http"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// entityRoutes make, change and delete queues, topics and subscriptions.
func entityRoutes() []kit.Route {
	routes := []kit.Route{
		kit.Post("/queues", makeQueue),
		kit.Post("/topics", makeTopic),
		kit.Post("/topics/{topic}/subscriptions", makeSubscription),
	}
	for _, at := range []string{"/queues/{queue}", "/topics/{topic}", "/topics/{topic}/subscriptions/{subscription}"} {
		routes = append(routes,
			kit.Post(at+"/settings", changeSettings),
			kit.Get(at+"/delete", func(r *kit.Request) error { return deletePage(r, "", 0) }),
			kit.Post(at+"/delete", deleteEntity))
	}
	return routes
}

// makes runs what a form asks for, and shows it again where that is refused.
func makes(r *kit.Request, kind string, path func(name string) string, put func(settingsForm) error, again func(settingsForm, int) error) error {
	values, err := r.Form()
	if err != nil {
		return err
	}
	form := readSettings(kind, values)
	form.Version = kit.Version{}
	at := path(form.Name)
	if err = forebay.Invalid("name", "is missing"); form.Name != "" {
		err = put(form)
	}
	if kit.Changed(err) { // a form that makes something changes nothing
		err = forebay.Errorf(forebay.CodeConflict, "there is one of this name already: %s", form.Name)
	}
	if status, problem, ok := refused(err); ok {
		form.Problem = problem
		return again(form, status)
	}
	if err != nil {
		return err
	}
	return r.Done(at, "The "+kind+" "+form.Name+" is made.")
}

// makeQueue answers POST /queues.
func makeQueue(r *kit.Request) error {
	return makes(r, kindQueue, func(name string) string { return kit.Path("queues", name) }, func(f settingsForm) error {
		s, err := f.queue()
		if err == nil {
			_, err = r.Client.PutMessageQueue(r.IfNew(), f.Name, s)
		}
		return err
	}, func(f settingsForm, status int) error { return queuesPage(r, f, status) })
}

// makeTopic answers POST /topics.
func makeTopic(r *kit.Request) error {
	return makes(r, kindTopic, func(name string) string { return kit.Path("topics", name) }, func(f settingsForm) error {
		s, err := f.topic()
		if err == nil {
			_, err = r.Client.PutTopic(r.IfNew(), f.Name, s)
		}
		return err
	}, func(f settingsForm, status int) error { return topicsPage(r, f, status) })
}

// makeSubscription answers POST /topics/{topic}/subscriptions.
func makeSubscription(r *kit.Request) error {
	topic := r.PathValue("topic")
	return makes(r, kindSubscription, func(name string) string { return kit.Path("topics", topic, "subscriptions", name) }, func(f settingsForm) error {
		s, err := f.subscription()
		if err == nil {
			_, err = r.Client.PutSubscription(r.IfNew(), topic, f.Name, s)
		}
		return err
	}, func(f settingsForm, status int) error { return topicPage(r, refusal{Settings: f, Status: status}) })
}

// subject is what an address of settings or of a deletion is about.
type subject struct {
	entity
	kind string
}

func subjectOf(r *kit.Request) subject {
	e := entityOf(r)
	switch topic := r.PathValue("topic"); {
	case e.Subscription != "":
		return subject{e, kindSubscription}
	case topic != "":
		return subject{entity{Name: topic, Topic: topic}, kindTopic}
	}
	return subject{e, kindQueue}
}

// page is the path of the subject's page, and of what is below it.
func (s subject) page(below ...string) string {
	if s.kind == kindTopic {
		return kit.Path(append([]string{"topics", s.Topic}, below...)...)
	}
	return s.Page(below...)
}

// name is what must be typed before the subject is deleted.
func (s subject) name() string {
	if s.kind == kindSubscription {
		return s.Subscription
	}
	return s.Name
}

// settings is the form of what the subject has now.
func (s subject) settings(r *kit.Request) (settingsForm, error) {
	switch s.kind {
	case kindTopic:
		t, err := kit.Fetch[forebay.Topic](r, "/v1"+s.page(), nil)
		return settingsOfTopic(t), err
	case kindSubscription:
		sub, err := kit.Fetch[forebay.Subscription](r, "/v1"+s.page(), nil)
		return settingsOfSubscription(sub), err
	}
	q, err := kit.Fetch[forebay.MessageQueue](r, "/v1"+s.page(), nil)
	return settingsOf(kindQueue, q), err
}

// again shows the subject's page with what was refused.
func (s subject) again(r *kit.Request, with refusal) error {
	switch s.kind {
	case kindTopic:
		return topicPage(r, with)
	case kindSubscription:
		return subscriptionPage(r, with)
	}
	return queuePage(r, with)
}

// changeSettings answers POST …/settings.
func changeSettings(r *kit.Request) error {
	values, err := r.Form()
	if err != nil {
		return err
	}
	s := subjectOf(r)
	form := readSettings(s.kind, values)
	err = s.put(r, form)
	if err == nil {
		return r.Done(s.page(), "The settings are changed.")
	}
	status, problem, ok := refused(err)
	if !ok {
		return err
	}
	form.Problem = problem
	if kit.Changed(err) {
		now, fetching := s.settings(r)
		if fetching != nil {
			return fetching
		}
		status, form.Problem, form.Version = form.Again(err, now.Version)
	}
	return s.again(r, refusal{Settings: form, Status: status})
}

// put stores what a form asks for.
func (s subject) put(r *kit.Request, form settingsForm) (err error) {
	switch s.kind {
	case kindTopic:
		settings, invalid := form.topic()
		if err = invalid; err == nil {
			_, err = r.Client.PutTopic(r.On(form.Version), s.Topic, settings)
		}
	case kindSubscription:
		settings, invalid := form.subscription()
		if err = invalid; err == nil {
			_, err = r.Client.PutSubscription(r.On(form.Version), s.Topic, s.Subscription, settings)
		}
	default:
		settings, invalid := form.queue()
		if err = invalid; err == nil {
			_, err = r.Client.PutMessageQueue(r.On(form.Version), s.Name, settings)
		}
	}
	return err
}

// deletePage says what a deletion takes, and asks for the name.
func deletePage(r *kit.Request, problem string, status int) error {
	s := subjectOf(r)
	text, command, etag := "", "", ""
	if s.kind == kindTopic {
		t, err := kit.Fetch[forebay.Topic](r, "/v1"+s.page(), nil)
		if err != nil {
			return err
		}
		text = kit.Plural(t.Subscriptions, "subscription") + " with all messages and dead letters, and " + kit.AtLeast(t.Scheduled, t.CountsCapped) + " scheduled messages go with it."
		command, etag = "forebay topics delete "+kit.Shell(s.Topic), t.ETag
	} else {
		q, err := kit.Fetch[forebay.MessageQueue](r, "/v1"+s.page(), nil)
		if err != nil {
			return err
		}
		if s.kind == kindQueue && q.Kind != forebay.KindMessages {
			return forebay.Errorf(forebay.CodeNotSupported, "a queue of jobs is made by the configuration, and not deleted")
		}
		etag = q.ETag
		text = kit.AtLeast(q.Active+q.Locked+q.Scheduled+q.Deferred, q.CountsCapped) + " messages and " + kit.AtLeast(q.DeadLetter, q.CountsCapped) + " dead letters go with it."
		if command = "forebay queues delete " + kit.Shell(s.Name); s.kind == kindSubscription {
			command = "forebay subscriptions delete " + kit.Shell(s.Topic) + " " + kit.Shell(s.Subscription)
		}
	}
	return pages.Render(r, "confirm", kit.Page{Title: "Delete the " + s.kind + " " + s.name(), Section: s.section(), Still: true, Status: status, Data: confirmation{
		Text: text + " This cannot be undone.", Type: s.name(), Action: s.page("delete"), Button: "Delete the " + s.kind, Back: s.page(), Problem: problem, Scope: string(forebay.ScopeManage),
		Hidden: map[string]string{"etag": etag},
	}, Commands: []string{command}})
}

// deleteChanged says why nothing was deleted.
func deleteChanged(kind string) string {
	return "The " + kind + " has been changed, or made anew, since this page was shown. Nothing was deleted. Look at it again, and confirm once more."
}

func (s subject) section() string {
	if s.kind == kindQueue {
		return "/queues"
	}
	return "/topics"
}

// deleteEntity answers POST …/delete.
func deleteEntity(r *kit.Request) error {
	form, err := r.Form()
	if err != nil {
		return err
	}
	s := subjectOf(r)
	if problem := typed(strings.TrimSpace(form.Get("confirm")), s.name()); problem != "" {
		return deletePage(r, problem, http.StatusUnprocessableEntity)
	}
	back, on := s.section(), r.On(kit.ReadVersion(form))
	switch s.kind {
	case kindTopic:
		err = r.Client.DeleteTopic(on, s.Topic)
	case kindSubscription:
		err, back = r.Client.DeleteSubscription(on, s.Topic, s.Subscription), kit.Path("topics", s.Topic)
	default:
		err = r.Client.DeleteMessageQueue(on, s.Name)
	}
	if kit.Changed(err) {
		return deletePage(r, deleteChanged(s.kind), http.StatusConflict)
	}
	if err != nil {
		return err
	}
	return r.Done(back, "The "+s.kind+" "+s.name()+" is deleted.")
}
