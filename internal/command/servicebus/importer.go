package servicebus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// Action is what an import did about an entity.
type Action string

// The actions.
const (
	Made      Action = "made"
	WouldMake Action = "would make" // it was a dry run
	Exists    Action = "exists"
	Failed    Action = "failed"
)

// Result says what an import did about one entity.
type Result struct {
	Action Action   `json:"action"`
	Kind   string   `json:"kind"`
	Name   string   `json:"name"`
	Notes  []string `json:"notes,omitempty"`
}

// importer makes entities in Forebay.
type importer struct {
	api     *client.Client
	dryRun  bool
	there   map[string]json.RawMessage // the settings of what exists, by the folded path
	results []Result
}

// run makes what does not exist. What others forward to comes first. The error says that nothing
// more could be done; what concerns one entity is in its result.
func (i *importer) run(ctx context.Context, entities []*entity) ([]Result, error) {
	if err := i.look(ctx, entities); err != nil {
		return nil, err
	}
	waiting := slices.Clone(entities)
	for len(waiting) > 0 {
		var later []*entity
		for _, e := range waiting {
			if i.missing(e, waiting) {
				later = append(later, e)
				continue
			}
			if err := i.one(ctx, e); err != nil {
				return nil, err
			}
		}
		if len(later) == len(waiting) { // they forward to each other, or belong to each other
			first := later[0]
			first.note("forwarding to %s is left out: it leads back", strings.Join(first.targets(), " and "))
			first.settings.ForwardTo, first.settings.ForwardDeadLettersTo = "", ""
		}
		waiting = later
	}
	return i.results, nil
}

// targets are what an entity forwards to.
func (e *entity) targets() (names []string) {
	for _, name := range []string{e.settings.ForwardTo, e.settings.ForwardDeadLettersTo} {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// missing reports whether something that an entity needs is still to be made.
func (i *importer) missing(e *entity, waiting []*entity) bool {
	needs := e.targets()
	if e.kind == subscription {
		needs = append(needs, e.topic)
	}
	return slices.ContainsFunc(waiting, func(other *entity) bool {
		return other != e && other.kind != subscription && slices.ContainsFunc(needs, func(name string) bool { return strings.EqualFold(name, other.name) }) && !i.done(other)
	})
}

func (i *importer) done(e *entity) bool {
	return slices.ContainsFunc(i.results, func(r Result) bool { return r.Kind == e.kind && r.Name == e.path() })
}

// look reads what exists.
func (i *importer) look(ctx context.Context, entities []*entity) error {
	i.there = map[string]json.RawMessage{}
	queues, err := i.api.MessageQueues(ctx)
	if err != nil {
		return err
	}
	for _, q := range queues {
		i.note(q.Name, q)
	}
	topics, err := i.api.Topics(ctx)
	if err != nil {
		return err
	}
	for _, t := range topics {
		i.note(t.Name, t)
		if !slices.ContainsFunc(entities, func(e *entity) bool { return e.kind == subscription && strings.EqualFold(e.topic, t.Name) }) {
			continue
		}
		subscriptions, err := i.api.Subscriptions(ctx, t.Name)
		if err != nil {
			return err
		}
		for _, s := range subscriptions {
			i.note(forebay.SubscriptionPath(t.Name, s.Name), s)
		}
	}
	return nil
}

func (i *importer) note(path string, v any) {
	data, err := json.Marshal(v)
	if err == nil {
		i.there[strings.ToLower(path)] = data
	}
}

// one makes an entity unless it exists.
func (i *importer) one(ctx context.Context, e *entity) error {
	r := Result{Action: Made, Kind: e.kind, Name: e.path(), Notes: e.notes}
	stored, exists := i.there[strings.ToLower(e.path())]
	switch {
	case exists:
		r.Action = Exists
		r.Notes = append(r.Notes, e.differences(stored)...)
	case i.dryRun:
		r.Action = WouldMake
	default:
		if err := i.put(ctx, e); err != nil {
			if ctx.Err() != nil || forebay.CodeOf(err) == forebay.CodeUnauthorized || forebay.CodeOf(err) == forebay.CodeForbidden {
				return err
			}
			r.Action, r.Notes = Failed, append(r.Notes, err.Error())
		}
	}
	i.results = append(i.results, r)
	return nil
}

func (i *importer) put(ctx context.Context, e *entity) (err error) {
	s := e.settings
	switch e.kind {
	case queue:
		_, err = i.api.PutMessageQueue(ctx, e.name, s.MessageQueueSettings)
	case topic:
		_, err = i.api.PutTopic(ctx, e.name, forebay.TopicSettings{DefaultTTLSeconds: s.DefaultTTLSeconds, DetectsDuplicates: s.DetectsDuplicates,
			DuplicateWindowSeconds: s.DuplicateWindowSeconds, AutoDeleteOnIdleSeconds: s.AutoDeleteOnIdleSeconds, EntityChange: s.EntityChange})
	default:
		_, err = i.api.PutSubscription(ctx, e.topic, e.name, s)
	}
	return err
}

// differences compares what the source asks for with what exists. Settings that it leaves to their
// defaults are not compared.
func (e *entity) differences(stored json.RawMessage) (notes []string) {
	wanted, err := json.Marshal(e.settings)
	var want, have map[string]json.RawMessage
	if err != nil || json.Unmarshal(wanted, &want) != nil || json.Unmarshal(stored, &have) != nil {
		return []string{"it cannot be compared"}
	}
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value, shown := have[name]
		if name == "rules" || !shown && (name == "user_metadata" || bytes.Equal(want[name], []byte("false"))) || bytes.Equal(value, want[name]) || e.kind == topic && !shown {
			continue
		}
		notes = append(notes, fmt.Sprintf("%s is %s, not %s", name, orNone(value), want[name]))
	}
	return notes
}

func orNone(v json.RawMessage) string {
	if len(v) == 0 {
		return "none"
	}
	return string(v)
}
