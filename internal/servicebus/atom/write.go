package atom

import (
	"net/http"
	"strings"

	"github.com/forebayhq/forebay"
)

func (h *Handler) put(w http.ResponseWriter, r *request) error {
	switch r.resource {
	case queues, topics, subscriptions, theNamespace:
		return forebay.Errorf(forebay.CodeMethodNotAllowed, "a list cannot be put")
	}
	in, err := readEntry(w, r.Request)
	if err != nil {
		return err
	}
	update := r.Header.Get("If-Match") != ""
	c := in.Content
	switch {
	case r.resource == aRule || r.resource == rules:
		if c.Rule == nil {
			return errDescription
		}
		return h.putRule(w, r, c.Rule, update)
	case r.resource == aSubscription && c.Subscription != nil:
		return h.putEntity(w, r, Subscription, c.Subscription, update)
	case r.resource == aQueueOrTopic && c.Queue != nil:
		return h.putEntity(w, r, Queue, c.Queue, update)
	case r.resource == aQueueOrTopic && c.Topic != nil:
		return h.putEntity(w, r, Topic, c.Topic, update)
	}
	return errDescription
}

var errDescription = forebay.Errorf(forebay.CodeInvalidRequest, "the content must be the description of what the path is about: QueueDescription, TopicDescription, SubscriptionDescription or RuleDescription")

func (h *Handler) putEntity(w http.ResponseWriter, r *request, kind Kind, d *description, update bool) error {
	c := Change{Name: Name{Kind: kind, Name: r.name}, Update: update}
	if kind == Subscription {
		topic, err := h.findTopic(r)
		if err != nil {
			return err
		}
		c.Topic, c.Name.Name = topic.Name, r.subscription
	}
	settings, kept, err := d.settings(kind)
	if err != nil {
		return err
	}
	before, err := h.before(r, c)
	if err != nil {
		return err
	}
	if before != nil {
		c.Name = before.Named()
	}
	if err := kept.adopt(&settings, before); err != nil {
		return err
	}
	for element, name := range map[string]*string{"ForwardTo": &settings.ForwardTo, "ForwardDeadLetteredMessagesTo": &settings.ForwardDeadLettersTo} {
		if err := h.aim(r, element, name); err != nil {
			return err
		}
	}
	c.Settings = settings
	if c.Attributes, err = kept.attributes(); err != nil {
		return err
	}
	e, err := h.Entities.Put(r.Context(), r.grant.Caller.Tenant, c)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if update {
		status = http.StatusOK
	}
	return answer(w, r, status, h.entityEntry(r, &e))
}

// before returns the entity that a PUT changes, or nil if it creates one.
func (h *Handler) before(r *request, c Change) (*Entity, error) {
	e, err := h.find(r)
	missing := forebay.CodeOf(err) == forebay.CodeNotFound || forebay.CodeOf(err) == forebay.CodeUnknownQueue
	switch {
	case missing && !c.Update:
		return nil, nil
	case err != nil:
		return nil, err
	case !c.Update:
		return nil, ErrExists
	case e.Kind != c.Kind:
		return nil, forebay.Errorf(forebay.CodeNotFound, "there is no such %s", strings.ToLower(c.Kind.String()))
	}
	return &e, nil
}

// aim replaces the name of what an entity forwards to by its exact one. The caller needs the right
// to send there, by his own token or by the one that came for this.
func (h *Handler) aim(r *request, element string, name *string) error {
	if *name == "" {
		return nil
	}
	if !sendsTo(r.grant, *name) {
		header := "ServiceBusSupplementaryAuthorization"
		if element != "ForwardTo" {
			header = "ServiceBusDlqSupplementaryAuthorization"
		}
		token := r.Header.Get(header)
		if token == "" {
			return unauthorized("401 SubCode=40100: Unauthorized : %s needs the right to send to its target, by the header %s.", element, header)
		}
		other, err := h.Authorizer.Authorize(r.Request, token, "/"+*name)
		if err != nil {
			return err
		}
		if other.Caller.Tenant != r.grant.Caller.Tenant || !sendsTo(other, *name) {
			return unauthorized("401 SubCode=40100: Unauthorized : the header %s does not allow to send to the target of %s.", header, element)
		}
	}
	e, err := h.Entities.Find(r.Context(), r.grant.Caller.Tenant, *name)
	switch code := forebay.CodeOf(err); {
	case code == forebay.CodeNotFound, code == forebay.CodeUnknownQueue, err == nil && e.Kind == Subscription:
		return forebay.Invalid(element, "is about an entity that does not exist")
	case err != nil:
		return err
	}
	*name = e.Name
	return nil
}

func (h *Handler) putRule(w http.ResponseWriter, r *request, in *ruleInput, update bool) error {
	subscription, err := h.find(r)
	if err != nil {
		return err
	}
	name := r.rule
	if name == "" {
		name = text(in.Name)
	}
	if name == "" {
		name = forebay.DefaultRule
	}
	settings, err := in.settings()
	if err != nil {
		return err
	}
	all, err := h.Entities.Rules(r.Context(), r.grant.Caller.Tenant, subscription.Named())
	if err != nil {
		return err
	}
	if known := ruleNamed(all, name); known != nil {
		if name = known.Name; !update {
			return ErrExists
		}
	}
	rule, err := h.Entities.PutRule(r.Context(), r.grant.Caller.Tenant, subscription.Named(), forebay.NewRule{Name: name, RuleSettings: settings}, update)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if update {
		status = http.StatusOK
	}
	return answer(w, r, status, r.ruleEntry(subscription.Named(), rule))
}

// ruleNamed finds a rule by its name, whatever the case. An exact name comes first.
func ruleNamed(all []forebay.Rule, name string) (found *forebay.Rule) {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
		if found == nil && strings.EqualFold(all[i].Name, name) {
			found = &all[i]
		}
	}
	return found
}

func (h *Handler) delete(w http.ResponseWriter, r *request) error {
	switch r.resource {
	case queues, topics, subscriptions, rules, theNamespace:
		return forebay.Errorf(forebay.CodeMethodNotAllowed, "a list cannot be deleted")
	}
	e, err := h.find(r)
	if err != nil {
		return err
	}
	if r.resource == aRule {
		all, err := h.Entities.Rules(r.Context(), r.grant.Caller.Tenant, e.Named())
		if err != nil {
			return err
		}
		rule := ruleNamed(all, r.rule)
		if rule == nil {
			return forebay.Errorf(forebay.CodeNotFound, "there is no such rule")
		}
		err = h.Entities.DeleteRule(r.Context(), r.grant.Caller.Tenant, e.Named(), rule.Name)
		if err != nil {
			return err
		}
	} else if err := h.Entities.Delete(r.Context(), r.grant.Caller.Tenant, e.Named()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
