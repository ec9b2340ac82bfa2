package servicebus

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
)

// emulatorConfig is the configuration of Microsoft's emulator (Azure/azure-service-bus-emulator-
// installer, ServiceBus-Emulator/Schema/Config-schema.json).
type emulatorConfig struct {
	UserConfig struct {
		Namespaces []struct {
			Name   string
			Queues []emulatorEntity
			Topics []struct {
				emulatorEntity
				Subscriptions []struct {
					emulatorEntity
					Rules []emulatorRule
				}
			}
		}
	}
}

type emulatorEntity struct {
	Name       string
	Properties map[string]json.RawMessage
}

type emulatorRule struct {
	Name       string
	Properties struct {
		FilterType        string
		CorrelationFilter *struct {
			ContentType, CorrelationID, Label, MessageID, ReplyTo, ReplyToSessionID, SessionID, To string
			Properties                                                                             forebay.Properties
		}
		SQLFilter *struct {
			SQLExpression string `json:"SqlExpression"`
		} `json:"SqlFilter"`
		Action *struct {
			SQLExpression string `json:"SqlExpression"`
		}
	}
}

// entities translates the configuration. Properties that are left out get Forebay's defaults, not
// the emulator's, which suit a short life.
func (c *emulatorConfig) entities() (list []*entity, err error) {
	if len(c.UserConfig.Namespaces) == 0 {
		return nil, fmt.Errorf("the configuration has no UserConfig.Namespaces")
	}
	for _, n := range c.UserConfig.Namespaces {
		for _, q := range n.Queues {
			list = append(list, q.entity(queue, ""))
		}
		for _, t := range n.Topics {
			list = append(list, t.entity(topic, ""))
			for _, s := range t.Subscriptions {
				e := s.entity(subscription, t.Name)
				for _, r := range s.Rules {
					rule, err := r.rule()
					if err != nil {
						e.note("rule %s: %v", r.Name, err)
						continue
					}
					e.settings.Rules = append(e.settings.Rules, rule)
				}
				list = append(list, e)
			}
		}
	}
	return list, nil
}

// entity translates the properties, and notes those that it does not know.
func (in emulatorEntity) entity(kind, of string) *entity {
	e := &entity{kind: kind, topic: of, name: in.Name}
	s := &e.settings
	p := properties{e, in.Properties}
	s.DefaultTTLSeconds = e.duration("DefaultMessageTimeToLive", p.text("DefaultMessageTimeToLive"))
	s.LockSeconds = e.duration("LockDuration", p.text("LockDuration"))
	s.AutoDeleteOnIdleSeconds = e.duration("AutoDeleteOnIdle", p.text("AutoDeleteOnIdle"))
	s.DetectsDuplicates, s.RequiresSession = p.boolean("RequiresDuplicateDetection"), p.boolean("RequiresSession")
	e.window(p.text("DuplicateDetectionHistoryTimeWindow"))
	dead := p.boolean("DeadLetteringOnMessageExpiration")
	s.DeadLetterOnExpiration = dead != nil && *dead
	s.ForwardTo = e.target("ForwardTo", p.text("ForwardTo"), "")
	s.ForwardDeadLettersTo = e.target("ForwardDeadLetteredMessagesTo", p.text("ForwardDeadLetteredMessagesTo"), "")
	p.read("MaxDeliveryCount", &s.MaxDeliveryCount)
	if metadata := p.text("UserMetadata"); metadata != "" {
		s.UserMetadata = &metadata
	}
	var unknown []string
	for name := range in.Properties {
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		e.note("%s is not kept", name)
	}
	return e
}

// properties are what is still to be read of an entity.
type properties struct {
	*entity
	rest map[string]json.RawMessage
}

func (p properties) read(name string, to any) {
	raw, given := p.rest[name]
	if !given {
		return
	}
	delete(p.rest, name)
	if err := json.Unmarshal(raw, to); err != nil {
		p.note("%s has a value of another type", name)
	}
}

func (p properties) text(name string) (s string) {
	p.read(name, &s)
	return strings.TrimSpace(s)
}

func (p properties) boolean(name string) (b *bool) {
	p.read(name, &b)
	return b
}

func (r emulatorRule) rule() (rule forebay.NewRule, err error) {
	p := r.Properties
	rule.Name = r.Name
	switch {
	case p.CorrelationFilter != nil:
		f := p.CorrelationFilter
		rule.CorrelationFilter = &forebay.CorrelationFilter{CorrelationID: f.CorrelationID, MessageID: f.MessageID, SessionID: f.SessionID, Subject: f.Label, To: f.To,
			ReplyTo: f.ReplyTo, ReplyToSessionID: f.ReplyToSessionID, ContentType: f.ContentType, Properties: f.Properties}
	case p.SQLFilter != nil:
		rule.SQLFilter = p.SQLFilter.SQLExpression
	case p.FilterType != "":
		return rule, fmt.Errorf("it has no %s filter", p.FilterType)
	}
	if p.Action != nil {
		rule.SQLAction = p.Action.SQLExpression
	}
	return rule, nil
}
