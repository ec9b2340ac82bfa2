package main

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
	"github.com/forebayhq/forebay/internal/filter"
)

// ruleCommands are the commands about the rules of subscriptions.
type ruleCommands struct{ *command.App }

func (a ruleCommands) group() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "rules", Short: "Say what a subscription selects",
		Long: `Rules without an action make one copy together of each message that one of them selects. Each
rule with an action makes a copy of its own. A subscription without any rule gets nothing.`,
	},
		command.List(a.App, &cobra.Command{Use: "list TOPIC SUBSCRIPTION", Short: "List a subscription's rules"},
			func(c *command.Call) ([]forebay.Rule, error) { return c.API.Rules(c.Ctx, c.Args[0], c.Args[1]) },
			func(r forebay.Rule) []command.Field {
				return []command.Field{{"RULE", r.Name}, {"FILTER", describeFilter(r.RuleSettings)}, {"ACTION", r.SQLAction}}
			}),
		a.create(),
		a.APICommand(&cobra.Command{Use: "delete TOPIC SUBSCRIPTION RULE", Short: "Delete a rule"},
			func(c *command.Call) error { return c.API.DeleteRule(c.Ctx, c.Args[0], c.Args[1], c.Args[2]) }),
		a.test())
}

// ruleFlags describe the filter and the action of a rule.
type ruleFlags struct {
	sql, correlation, action string
	none                     bool
}

func (f *ruleFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.sql, "sql", "", `select by this condition, such as "quantity > 10 AND sys.Label LIKE 'new%'"`)
	flags.StringVar(&f.correlation, "correlation", "", `select by these values of properties, such as '{"subject":"new"}'`)
	flags.BoolVar(&f.none, "none", false, "select nothing")
	flags.StringVar(&f.action, "action", "", `change the copy, such as "SET quantity = quantity / 2; REMOVE color"`)
}

// settings returns the rule, and whether any flag describes one.
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
			return s, false, command.Usagef("--correlation must be a JSON object of properties " +
				"such as subject and application_properties")
		}
	}
	if _, err := filter.Compile("rule", s); err != nil {
		return s, false, err // before any request
	}
	return s, f.sql != "" || f.correlation != "" || f.none || f.action != "", nil
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

func (a ruleCommands) create() *cobra.Command {
	var f ruleFlags
	c := command.Show(a.App, &cobra.Command{
		Use: "create TOPIC SUBSCRIPTION RULE", Aliases: []string{"add"}, Short: "Give a subscription a rule, or replace it",
		Long: `Give a subscription a rule, or replace the one of this name. Without --sql, --correlation or
--none it selects everything.`,
		Example: `  forebay rules create orders large big --sql "quantity > 100"
  forebay rules create orders audit copy --correlation '{"subject":"new"}' --action "SET a = TRUE"`,
	}, func(c *command.Call) (rule forebay.Rule, err error) {
		settings, _, err := f.settings()
		if err != nil {
			return rule, err
		}
		return c.API.PutRule(c.Ctx, c.Args[0], c.Args[1], c.Args[2], settings)
	}, func(r forebay.Rule) []command.Field {
		return []command.Field{{"rule", r.Name}, {"filter", describeFilter(r.RuleSettings)}, {"action", r.SQLAction}}
	})
	f.add(c.Flags())
	return c
}

// verdict is the result of one rule for a message.
type verdict struct {
	Rule   string              `json:"rule"`
	Result string              `json:"result"` // selected, not selected or error
	Error  string              `json:"error,omitempty"`
	Copy   *forebay.NewMessage `json:"copy,omitempty"` // the changed copy, if the rule has an action
}

func (a ruleCommands) test() *cobra.Command {
	var f ruleFlags
	var m messageFlags
	c := a.Command(&cobra.Command{
		Use:   "test [TOPIC SUBSCRIPTION]",
		Short: "Show what rules make of a message, without sending it",
		Long: `Show what the rules of a subscription make of a message, without sending it. Without a
subscription show what one rule does. --sql, --correlation, --none and --action describe it, and
no server is needed.`,
		Example: `  forebay rules test orders large --property quantity=12
  forebay rules test --sql "quantity > 10" --action "REMOVE color" --property quantity=12`,
	}, func(c *command.Call) error {
		settings, given, err := f.settings()
		switch {
		case err != nil:
			return err
		case given == (len(c.Args) > 0) || len(c.Args) == 1:
			return command.Usagef("name a topic and a subscription, or describe a rule by --sql, --correlation, --none or --action")
		}
		rules := []forebay.Rule{{Name: "-", RuleSettings: settings}}
		if len(c.Args) == 2 {
			api, err := c.Client()
			if err != nil {
				return err
			}
			if rules, err = api.Rules(c.Ctx, c.Args[0], c.Args[1]); err != nil {
				return err
			}
		}
		message, err := m.message(c)
		if err != nil {
			return err
		}
		return printVerdicts(c, rules, message)
	})
	f.add(c.Flags())
	m.add(a.App, c.Flags())
	return c
}

func printVerdicts(c *command.Call, rules []forebay.Rule, m forebay.NewMessage) error {
	verdicts := make([]verdict, len(rules))
	for i, r := range rules {
		var err error
		if verdicts[i], err = judge(r, m); err != nil {
			return err
		}
	}
	return command.PrintList(c.App, verdicts, func(v verdict) []command.Field {
		copied := v.Error
		if v.Copy != nil {
			data, _ := json.Marshal(v.Copy) // its properties were checked
			copied = string(data)
		}
		return []command.Field{{"RULE", v.Rule}, {"RESULT", v.Result}, {"COPY", copied}}
	})
}

// judge applies one rule to the message.
func judge(r forebay.Rule, m forebay.NewMessage) (verdict, error) {
	compiled, err := filter.Compile(r.Name, r.RuleSettings)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{Rule: r.Name, Result: "not selected"}
	view := &filter.Message{
		MessageID: m.MessageID, CorrelationID: m.CorrelationID, SessionID: m.SessionID, Subject: m.Subject,
		To: m.To, ReplyTo: m.ReplyTo, ReplyToSessionID: m.ReplyToSessionID, ContentType: m.ContentType,
		PartitionKey: m.PartitionKey, Properties: m.Properties,
	}
	copies, err := filter.Select([]*filter.Rule{compiled}, view)
	switch {
	case err != nil:
		v.Result, v.Error = "error", err.Error()
	case len(copies) > 0 && copies[0].TooLarge != "":
		v.Result, v.Error = "error", copies[0].TooLarge
	case len(copies) > 0:
		v.Result = "selected"
		if c := copies[0].Message; copies[0].Rule != "" {
			m.MessageID, m.CorrelationID, m.SessionID, m.Subject = c.MessageID, c.CorrelationID, c.SessionID, c.Subject
			m.To, m.ReplyTo, m.ReplyToSessionID, m.ContentType = c.To, c.ReplyTo, c.ReplyToSessionID, c.ContentType
			m.PartitionKey, m.Properties = c.PartitionKey, c.Properties
			v.Copy = &m
		}
	}
	return v, nil
}
