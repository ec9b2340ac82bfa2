package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/filter"
)

// ruleFlags say what a rule selects and does.
type ruleFlags struct {
	sql, correlation, action string
	none                     bool
}

func (f *ruleFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.sql, "sql", "", "select by this condition, such as \"quantity > 10 AND sys.Label LIKE 'new%'\"")
	flags.StringVar(&f.correlation, "correlation", "", "select by these values of properties, as JSON, such as '{\"subject\":\"new\"}'")
	flags.BoolVar(&f.none, "none", false, "select nothing")
	flags.StringVar(&f.action, "action", "", "change the copy, such as \"SET quantity = quantity / 2; REMOVE color\"")
}

// settings returns the rule, and whether any flag speaks of it.
func (f *ruleFlags) settings() (s forebay.RuleSettings, given bool, err error) {
	s = forebay.RuleSettings{SQLFilter: f.sql, SQLAction: f.action}
	if f.none {
		s.BooleanFilter = new(bool)
	}
	if f.correlation != "" {
		s.CorrelationFilter = &forebay.CorrelationFilter{}
		d := json.NewDecoder(strings.NewReader(f.correlation))
		d.DisallowUnknownFields()
		if err := d.Decode(s.CorrelationFilter); err != nil {
			return s, false, usagef("--correlation must be a JSON object of properties such as subject and application_properties")
		}
	}
	if _, err := filter.Compile("rule", s); err != nil {
		return s, false, err // before anything is asked of a server
	}
	return s, f.sql != "" || f.correlation != "" || f.none || f.action != "", nil
}

func (a *app) rules() *cobra.Command {
	list := a.apiCommand("list", "List a subscription's rules", ofSubscription, func(ctx context.Context, api *client.Client, args []string) error {
		rules, err := api.Rules(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		return printList(a, all(rules), 0, []column[forebay.Rule]{
			{"RULE", func(r forebay.Rule) string { return r.Name }},
			{"FILTER", func(r forebay.Rule) string { return describeFilter(r.RuleSettings) }},
			{"ACTION", func(r forebay.Rule) string { return r.SQLAction }},
		})
	})
	remove := a.apiCommand("delete", "Delete a rule", ofRule, func(ctx context.Context, api *client.Client, args []string) error {
		return api.DeleteRule(ctx, args[0], args[1], args[2])
	})
	return a.group("rules", "Say what a subscription selects", `Rules without an action make one copy together of each message that one of them selects. Each rule
with an action makes a copy of its own. Without any rule a subscription gets nothing.`, a.rulesAdd(), list, remove, a.rulesTest())
}

func describeFilter(s forebay.RuleSettings) string {
	switch {
	case s.SQLFilter != "":
		return s.SQLFilter
	case s.CorrelationFilter != nil:
		data, _ := json.Marshal(s.CorrelationFilter) // came as JSON
		return string(data)
	case s.BooleanFilter != nil && !*s.BooleanFilter:
		return "nothing"
	}
	return "everything"
}

func (a *app) rulesAdd() *cobra.Command {
	var f ruleFlags
	c := a.apiCommand("add", "Add a rule to a subscription, or replace it", ofRule, func(ctx context.Context, api *client.Client, args []string) error {
		settings, _, err := f.settings()
		if err != nil {
			return err
		}
		rule, err := api.PutRule(ctx, args[0], args[1], args[2], settings)
		if err != nil {
			return err
		}
		return a.printOne(rule, [][2]string{{"rule", rule.Name}, {"filter", describeFilter(rule.RuleSettings)}, {"action", rule.SQLAction}})
	})
	c.Long = "Add a rule to a subscription, or replace it. Without --sql, --correlation or --none it selects everything."
	c.Example = `  forebay rules add orders large big --sql "quantity > 100"
  forebay rules add orders audit copy --correlation '{"application_properties":{"color":"red"}}' --action "SET audited = TRUE"`
	f.register(c)
	return c
}

// verdict is what one rule makes of a message.
type verdict struct {
	Rule   string              `json:"rule"`
	Result string              `json:"result"` // selected, not selected or error
	Error  string              `json:"error,omitempty"`
	Copy   *forebay.NewMessage `json:"copy,omitempty"` // where an action makes one
}

func (a *app) rulesTest() *cobra.Command {
	var f ruleFlags
	m := &messageFlags{}
	c := &cobra.Command{
		Use:   "test [TOPIC SUBSCRIPTION]",
		Short: "Show what rules make of a message, without sending it",
		Long: `Show what the rules of a subscription make of a message, without sending it; or what one rule does
that --sql, --correlation, --none and --action describe, without any server.`,
		Example: `  forebay rules test orders large --property quantity=12
  forebay rules test --sql "quantity > 10" --action "SET quantity = quantity / 2" --property quantity=12`,
		Args: arguments(0, ofSubscription...),
		RunE: func(c *cobra.Command, args []string) error {
			settings, given, err := f.settings()
			switch {
			case err != nil:
				return err
			case given == (len(args) > 0) || len(args) == 1:
				return usagef("name a topic and a subscription, or describe a rule by --sql, --correlation, --none or --action")
			}
			rules := []forebay.Rule{{Name: "-", RuleSettings: settings}}
			if len(args) == 2 {
				api, err := a.client()
				if err != nil {
					return err
				}
				if rules, err = api.Rules(c.Context(), args[0], args[1]); err != nil {
					return err
				}
			}
			message, err := m.message(c.Context(), a)
			if err != nil {
				return err
			}
			return a.printVerdicts(rules, message)
		},
	}
	f.register(c)
	m.register(c)
	return c
}

func (a *app) printVerdicts(rules []forebay.Rule, m forebay.NewMessage) error {
	verdicts := make([]verdict, len(rules))
	for i, r := range rules {
		var err error
		if verdicts[i], err = judge(r, m); err != nil {
			return err
		}
	}
	return printList(a, all(verdicts), 0, []column[verdict]{
		{"RULE", func(v verdict) string { return v.Rule }},
		{"RESULT", func(v verdict) string { return v.Result }},
		{"COPY", func(v verdict) string {
			if v.Copy == nil {
				return v.Error
			}
			data, _ := json.Marshal(v.Copy) // its properties were checked
			return string(data)
		}},
	})
}

// judge asks one rule about the message.
func judge(r forebay.Rule, m forebay.NewMessage) (verdict, error) {
	compiled, err := filter.Compile(r.Name, r.RuleSettings)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{Rule: r.Name, Result: "not selected"}
	view := &filter.Message{
		MessageID: m.MessageID, CorrelationID: m.CorrelationID, SessionID: m.SessionID, Subject: m.Subject, To: m.To, ReplyTo: m.ReplyTo,
		ReplyToSessionID: m.ReplyToSessionID, ContentType: m.ContentType, PartitionKey: m.PartitionKey, Properties: m.Properties,
	}
	copies, err := filter.Select([]*filter.Rule{compiled}, view)
	switch {
	case err != nil:
		v.Result, v.Error = "error", err.Error()
	case len(copies) > 0 && copies[0].TooLarge != "":
		v.Result, v.Error = "error", copies[0].TooLarge
	case len(copies) > 0:
		v.Result = "selected"
		if made := copies[0].Message; copies[0].Rule != "" {
			m.MessageID, m.CorrelationID, m.SessionID, m.Subject, m.To, m.ReplyTo = made.MessageID, made.CorrelationID, made.SessionID, made.Subject, made.To, made.ReplyTo
			m.ReplyToSessionID, m.ContentType, m.PartitionKey, m.Properties = made.ReplyToSessionID, made.ContentType, made.PartitionKey, made.Properties
			v.Copy = &m
		}
	}
	return v, nil
}
