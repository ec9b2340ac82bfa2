package messages

import (
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/dashboard/kit"
)

// stateForm is the status and the metadata of a queue, a topic or a subscription, with what it may
// become.
type stateForm struct {
	forebay.EntityState
	kit.Version
	Action  string // path that the form is sent to
	Choices []statusChoice
	Chosen  forebay.EntityStatus // what the fields of the form hold
	Note    string
	Typed   bool // somebody typed them, and they were not taken
}

type statusChoice struct {
	Status forebay.EntityStatus
	Text   string
}

// stateOf is the form of what an entity has, or what was refused of it.
func stateOf(state forebay.EntityState, action string, refused *stateForm, choices ...statusChoice) stateForm {
	f := stateForm{EntityState: state, Action: action, Choices: append([]statusChoice{{forebay.EntityActive, "active"}}, choices...),
		Version: kit.VersionOf(state.ETag, kit.Value{Name: "status", Text: string(state.Status)}, kit.Value{Name: "note", Text: state.UserMetadata}),
		Chosen:  state.Status, Note: state.UserMetadata}
	if refused != nil {
		f.Version, f.Chosen, f.Note, f.Typed = refused.Version, refused.Chosen, refused.Note, true
	}
	return f
}

// State is the part of the page about the entity's status.
func (d boxData) State() stateForm {
	var choices []statusChoice
	if d.Entity.Subscription == "" {
		choices = append(choices, statusChoice{forebay.EntitySendDisabled, "nobody sends"})
	}
	choices = append(choices, statusChoice{forebay.EntityReceiveDisabled, "nobody receives"}, statusChoice{forebay.EntityDisabled, "disabled"})
	return stateOf(d.Queue.EntityState, d.Entity.Page("status"), d.refused, choices...)
}

// State is the part of the page about the topic's status.
func (d topicData) State() stateForm {
	return stateOf(d.Topic.EntityState, kit.Path("topics", d.Topic.Name, "status"), d.refused,
		statusChoice{forebay.EntitySendDisabled, "nobody sends"}, statusChoice{forebay.EntityDisabled, "disabled"})
}

// changeState answers POST …/status of a queue, a subscription or a topic.
func changeState(r *kit.Request) error {
	values, err := r.Form()
	if err != nil {
		return err
	}
	s := subjectOf(r)
	form := stateForm{Version: kit.ReadVersion(values), Chosen: forebay.EntityStatus(values.Get("status")), Note: strings.TrimSpace(plainLines(values.Get("user_metadata")))}
	change, on := forebay.EntityChange{Status: form.Chosen, UserMetadata: &form.Note}, r.On(form.Version)
	switch s.kind {
	case kindTopic:
		_, err = r.Client.ChangeTopic(on, s.Topic, change)
	case kindSubscription:
		_, err = r.Client.ChangeSubscription(on, s.Topic, s.Subscription, change)
	default:
		_, err = r.Client.ChangeMessageQueue(on, s.Name, change)
	}
	if err == nil {
		return r.Done(s.page(), "The status is "+string(change.Status)+".")
	}
	status, problem, ok := refused(err)
	if !ok {
		return err
	}
	if kit.Changed(err) {
		now, fetching := kit.Fetch[forebay.EntityState](r, "/v1"+s.page(), nil)
		if fetching != nil {
			return fetching
		}
		status, problem, form.Version = form.Again(err, stateOf(now, "", nil).Version)
	}
	return s.again(r, refusal{State: &form, Problem: problem, Status: status})
}
