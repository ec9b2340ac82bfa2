package messages

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"sort"
	"strconv"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

type queuesData struct {
	Jobs  []forebay.QueueInfo
	Boxes window[forebay.MessageQueue]
	New   settingsForm
}

// window is a part of a list that the API gives whole.
type window[T any] struct {
	Items []T
	Total int
	Next  string // the name to go on after; "": the list ends here
}

// windowRows is how many rows a page shows of such a list.
const windowRows = 50

// windowOf returns the rows after the name that the address says. The list is in the order of its
// names.
func windowOf[T any](r *kit.Request, items []T, name func(T) string) window[T] {
	w := window[T]{Total: len(items)}
	if after := r.Query("after"); after != "" {
		items = items[sort.Search(len(items), func(i int) bool { return name(items[i]) > after }):]
	}
	if w.Items = items; len(items) > windowRows {
		w.Items = items[:windowRows]
		w.Next = name(items[windowRows-1])
	}
	return w
}

func queueName(q forebay.MessageQueue) string { return q.Name }

// listQueues answers GET /queues.
func listQueues(r *kit.Request) error { return queuesPage(r, newSettings(kindQueue), 0) }

func queuesPage(r *kit.Request, form settingsForm, status int) error {
	jobs, err := kit.Fetch[forebay.Page[forebay.QueueInfo]](r, "/v1/queues", allTenants(r))
	if err != nil {
		return err
	}
	messages, err := kit.Fetch[forebay.Page[forebay.MessageQueue]](r, "/v1/queues", kit.Values("kind", forebay.KindMessages))
	if err != nil {
		return err
	}
	return pages.Render(r, "queues", kit.Page{Title: "Queues", Section: "/queues", Data: queuesData{jobs.Items, windowOf(r, messages.Items, queueName), form}, Status: status, Still: status != 0,
		Commands: []string{"forebay queues list"}})
}

// allTenants asks for the counts of every tenant, if the page is about all.
func allTenants(r *kit.Request) url.Values {
	if r.AllTenants() {
		return kit.Values("all_tenants", "true")
	}
	return nil
}

// entity is a queue of messages, or a subscription, which is received from like one.
type entity struct {
	Name                string // as a command takes it
	Topic, Subscription string // "" for a queue
}

func entityOf(r *kit.Request) entity {
	if name := r.PathValue("subscription"); name != "" {
		topic := r.PathValue("topic")
		return entity{forebay.SubscriptionPath(topic, name), topic, name}
	}
	return entity{Name: r.PathValue("queue")}
}

func (e entity) path(below ...string) string {
	if e.Subscription != "" {
		return kit.Path(append([]string{"topics", e.Topic, "subscriptions", e.Subscription}, below...)...)
	}
	return kit.Path(append([]string{"queues", e.Name}, below...)...)
}

// Page returns the path of a page of the entity.
func (e entity) Page(below ...string) string { return e.path(below...) }

// api returns a path below the entity in the API, or below its dead-letter subqueue.
func (e entity) api(dead bool, below ...string) string {
	if dead {
		below = append([]string{forebay.SubqueueDeadLetter}, below...)
	}
	return "/v1" + e.path(below...)
}

// subqueue is the name of the entity, or of its dead-letter subqueue, as a command takes it.
func (e entity) subqueue(dead bool) string {
	if dead {
		return e.Name + "/" + forebay.SubqueueDeadLetter
	}
	return e.Name
}

func (e entity) section() string {
	if e.Subscription != "" {
		return "/topics"
	}
	return "/queues"
}

// showQueue answers GET /queues/{queue}, for a queue of jobs or of messages.
func showQueue(r *kit.Request) error { return queuePage(r, refusal{}) }

// refusal is what somebody typed into a form of a page and was not taken, and why. The other forms
// show what is there.
type refusal struct {
	Message  messageForm
	Rule     ruleForm
	Settings settingsForm // Kind "": none
	State    *stateForm   // nil: none
	Problem  string
	Status   int // of the page; 0: nothing was refused
}

func queuePage(r *kit.Request, with refusal) error {
	e := entityOf(r)
	found, err := kit.Fetch[json.RawMessage](r, "/v1"+e.path(), nil)
	if err != nil {
		return err
	}
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(found, &kind); err != nil {
		return err
	}
	if kind.Kind != forebay.KindMessages {
		q, err := kit.Fetch[forebay.QueueInfo](r, "/v1"+e.path(), allTenants(r))
		if err != nil {
			return err
		}
		commands := []string{"forebay queues show " + q.Name}
		if r.May("admin") {
			commands = append(commands, "forebay queues pause "+q.Name, "forebay queues resume "+q.Name)
		}
		return pages.Render(r, "job-queue", kit.Page{Title: "Queue " + q.Name, Section: "/queues", Data: q, Commands: commands})
	}
	var q forebay.MessageQueue
	if err := json.Unmarshal(found, &q); err != nil {
		return err
	}
	if with.Settings.Kind == "" {
		with.Settings = settingsOf(kindQueue, q)
	}
	data := boxData{Entity: e, Queue: q, Form: with.Message, Settings: with.Settings, refused: with.State, Problem: with.Problem}
	if err := data.peek(r); err != nil {
		return err
	}
	return pages.Render(r, "message-queue", kit.Page{Title: "Queue " + q.Name, Section: "/queues", Data: data, Status: with.Status, Still: with.Status != 0,
		Commands: []string{"forebay queues show " + kit.Shell(q.Name), "forebay messages peek " + kit.Shell(e.subqueue(data.Dead))}})
}

// boxData is what stands in a queue of messages or a subscription.
type boxData struct {
	Entity   entity
	Queue    forebay.MessageQueue
	Rules    []forebay.Rule // of a subscription
	Dead     bool           // the dead-letter subqueue is shown
	Messages forebay.Page[forebay.Message]
	Groups   forebay.DeadMessageGroups // of the dead letters
	Form     messageForm
	Rule     ruleForm
	Settings settingsForm
	refused  *stateForm // nil: none
	Problem  string
}

// deadTab is the value of ?tab= that shows dead letters.
const deadTab = "dead-letters"

// peek reads the messages that the address asks for. Their deliveries are not counted.
func (d *boxData) peek(r *kit.Request) error {
	d.Dead = r.Query("tab") == deadTab
	query := kit.Values("from_sequence_number", r.Query("from_sequence_number"), "limit", "50", "bodies", "false")
	if reason := r.Query("reason"); d.Dead && reason != "" {
		query.Set("reason", reason)
	}
	var err error
	d.Messages, err = kit.Fetch[forebay.Page[forebay.Message]](r, d.Entity.api(d.Dead, "messages"), query)
	if err != nil || !d.Dead {
		return err
	}
	d.Groups, err = r.Client.Messages(d.Entity.subqueue(true)).DeadGroups(r.Context())
	return err
}

// pauseQueue answers POST /queues/{queue}/pause.
func pauseQueue(r *kit.Request) error {
	name := r.PathValue("queue")
	if err := r.Client.PauseQueue(r.Context(), name); err != nil {
		return err
	}
	return r.Done(kit.Path("queues", name), "The queue "+name+" is paused. Calls in flight finish.")
}

// resumeQueue answers POST /queues/{queue}/resume.
func resumeQueue(r *kit.Request) error {
	name := r.PathValue("queue")
	if err := r.Client.ResumeQueue(r.Context(), name); err != nil {
		return err
	}
	return r.Done(kit.Path("queues", name), "The queue "+name+" goes on.")
}

// refused returns the status and the text for a form that the API did not take. ok is false for
// errors that no other form would mend.
func refused(err error) (status int, problem string, ok bool) {
	e, known := errors.AsType[*forebay.Error](err)
	if !known {
		return 0, "", false
	}
	switch e.Code {
	case forebay.CodeConflict, forebay.CodeEntityDisabled, forebay.CodePreconditionFailed:
		return http.StatusConflict, e.Error(), true
	case forebay.CodeTenantLimit:
		return http.StatusTooManyRequests, e.Error(), true
	case forebay.CodeInvalidRequest, forebay.CodePayloadTooLarge, forebay.CodeNotSupported, forebay.CodeUnknownField:
		return http.StatusUnprocessableEntity, e.Error(), true
	}
	return 0, "", false
}

// MessagePage is the page of one of the messages.
func (d boxData) MessagePage(m forebay.Message) string {
	return tabOf(d.Entity.Page("messages", strconv.FormatInt(m.SequenceNumber, 10)), d.Dead)
}

// Reasoned is the page of an act on the dead letters with a reason.
func (d boxData) Reasoned(act, reason string) string {
	return d.Entity.Page(act) + "?" + kit.Values("tab", deadTab, "reason", reason).Encode()
}
