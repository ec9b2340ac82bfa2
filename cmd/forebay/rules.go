package main

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/rules"
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
		command.Conditional(a.APICommand(&cobra.Command{Use: "delete TOPIC SUBSCRIPTION RULE", Short: "Delete a rule"},
			func(c *command.Call) error { return c.API.DeleteRule(c.Ctx, c.Args[0], c.Args[1], c.Args[2]) }), false),
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
	return command.Conditional(c, true)
}

// verdict is the result of one rule for a message.
type verdict struct {
	Subscription string `json:"subscription,omitempty"`
	forebay.RuleVerdict
}

func (a ruleCommands) test() *cobra.Command {
	var f ruleFlags
	var m messageFlags
	c := a.Command(&cobra.Command{
		Use:   "test [TOPIC [SUBSCRIPTION]]",
		Short: "Show what rules make of a message, without sending it",
		Long: `Show what the rules of a subscription make of a message, without sending it. Without a
subscription show that for all of the topic. Without a topic show what one rule does. --sql,
--correlation, --none and --action describe it, and no server is needed.`,
		Example: `  forebay rules test orders large --property quantity=12
  forebay rules test orders --subject new --property quantity=12
  forebay rules test --sql "quantity > 10" --action "REMOVE color" --property quantity=12`,
	}, func(c *command.Call) error {
		settings, given, err := f.settings()
		switch {
		case err != nil:
			return err
		case given == (len(c.Args) > 0):
			return command.Usagef("name a topic, or describe a rule by --sql, --correlation, --none or --action")
		}
		message, err := m.message(c)
		if err != nil {
			return err
		}
		var verdicts []verdict
		if given {
			v, err := rules.Try(settings, message)
			if err != nil {
				return err
			}
			verdicts = append(verdicts, verdict{RuleVerdict: v})
		} else if verdicts, err = testTopic(c, message); err != nil {
			return err
		}
		return command.PrintList(c.App, verdicts, func(v verdict) []command.Field {
			copied := ""
			if v.Copy != nil {
				data, _ := json.Marshal(v.Copy) // its properties were checked
				copied = string(data)
			}
			fields := []command.Field{{"RULE", v.Rule}, {"RESULT", v.Result}, {"WHY", v.Why}, {"COPY", copied}}
			if v.Subscription != "" {
				fields = append([]command.Field{{"SUBSCRIPTION", v.Subscription}}, fields...)
			}
			return fields
		})
	})
	f.add(c.Flags())
	m.add(a.App, c.Flags())
	return c
}

// testTopic asks what the rules of a topic, or of one subscription, make of the message.
func testTopic(c *command.Call, m forebay.NewMessage) (verdicts []verdict, err error) {
	api, err := c.Client()
	if err != nil {
		return nil, err
	}
	req := forebay.RuleTestRequest{Message: m}
	if len(c.Args) > 1 {
		req.Subscription = c.Args[1]
	}
	test, err := api.TestRules(c.Ctx, c.Args[0], req)
	if test.More {
		c.Note("There are more subscriptions. Name one to see its rules.")
	}
	for _, s := range test.Subscriptions {
		for _, r := range s.Rules {
			verdicts = append(verdicts, verdict{s.Subscription, r})
		}
	}
	return verdicts, err
}
