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
	Action  string // path that the form is sent to
	Before  string // when the entity was changed last
	Choices []statusChoice
}

type statusChoice struct {
	Status forebay.EntityStatus
	Text   string
}

// State is the part of the page about the entity's status.
func (d boxData) State() stateForm {
	f := stateForm{EntityState: d.Queue.EntityState, Before: stamp(d.Queue.UpdatedAt), Action: d.Entity.Page("status"), Choices: []statusChoice{{forebay.EntityActive, "active"}}}
	if d.Entity.Subscription == "" {
		f.Choices = append(f.Choices, statusChoice{forebay.EntitySendDisabled, "nobody sends"})
	}
	f.Choices = append(f.Choices, statusChoice{forebay.EntityReceiveDisabled, "nobody receives"}, statusChoice{forebay.EntityDisabled, "disabled"})
	return f
}

// State is the part of the page about the topic's status.
func (d topicData) State() stateForm {
	return stateForm{EntityState: d.Topic.EntityState, Before: stamp(d.Topic.UpdatedAt), Action: kit.Path("topics", d.Topic.Name, "status"),
		Choices: []statusChoice{{forebay.EntityActive, "active"}, {forebay.EntitySendDisabled, "nobody sends"}, {forebay.EntityDisabled, "disabled"}}}
}

// readChange is what somebody has chosen in a stateForm. It is a conflict if the entity has
// changed since the form was opened.
func readChange(r *kit.Request, s subject) (change forebay.EntityChange, err error) {
	form, err := r.Form()
	if err != nil {
		return change, err
	}
	changed, err := s.changedAt(r)
	if err != nil {
		return change, err
	}
	if form.Get("before") != stamp(changed) && r.May("manage") { // else the API refuses
		return change, forebay.Errorf(forebay.CodeConflict, changedMeanwhile)
	}
	note := strings.TrimSpace(plainLines(form.Get("user_metadata")))
	return forebay.EntityChange{Status: forebay.EntityStatus(form.Get("status")), UserMetadata: &note}, nil
}

// changeQueue answers POST …/status of a queue or a subscription.
func changeQueue(r *kit.Request) error {
	e := entityOf(r)
	change, err := readChange(r, subjectOf(r))
	switch {
	case err != nil:
	case e.Subscription != "":
		_, err = r.Client.ChangeSubscription(r.Context(), e.Topic, e.Subscription, change)
	default:
		_, err = r.Client.ChangeMessageQueue(r.Context(), e.Name, change)
	}
	if status, problem, ok := refused(err); ok {
		if e.Subscription != "" {
			return subscriptionPage(r, ruleForm{}, problem, status)
		}
		return queuePage(r, messageForm{}, problem, status)
	}
	if err != nil {
		return err
	}
	return r.Done(e.Page(), "The status is "+string(change.Status)+".")
}

// changeTopic answers POST /topics/{topic}/status.
func changeTopic(r *kit.Request) error {
	name := r.PathValue("topic")
	change, err := readChange(r, subjectOf(r))
	if err == nil {
		_, err = r.Client.ChangeTopic(r.Context(), name, change)
	}
	if status, problem, ok := refused(err); ok {
		return topicPage(r, messageForm{}, problem, status)
	}
	if err != nil {
		return err
	}
	return r.Done(kit.Path("topics", name), "The status is "+string(change.Status)+".")
}
