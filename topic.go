package forebay

import (
	"strings"
	"time"
)

// RuleSettings say which messages a subscription's rule selects and how it changes the copy. At
// most one filter is set. Without a filter the rule selects all messages.
type RuleSettings struct {
	SQLFilter         string             `json:"sql_filter,omitempty" doc:"a condition on the message's properties, at most 1,024 characters"`
	CorrelationFilter *CorrelationFilter `json:"correlation_filter,omitempty" doc:"properties that must have these values, all of them"`
	BooleanFilter     *bool              `json:"boolean_filter,omitempty" doc:"true: selects all messages; false: none"`
	SQLAction         string             `json:"sql_action,omitempty" doc:"statements that change the copy, at most 1,024 characters; a rule with an action makes a copy of its own, with the application property RuleName"`
	// The parameters' names begin with @, as they stand in the text.
	SQLFilterParameters Properties `json:"sql_filter_parameters,omitempty" doc:"values of the parameters in sql_filter, by their names, such as @region"`
	SQLActionParameters Properties `json:"sql_action_parameters,omitempty" doc:"values of the parameters in sql_action"`
}

// CorrelationFilter lists properties and the values they must have. "" matches any value.
type CorrelationFilter struct {
	CorrelationID    string     `json:"correlation_id,omitempty"`
	MessageID        string     `json:"message_id,omitempty"`
	SessionID        string     `json:"session_id,omitempty"`
	Subject          string     `json:"subject,omitempty"`
	To               string     `json:"to,omitempty"`
	ReplyTo          string     `json:"reply_to,omitempty"`
	ReplyToSessionID string     `json:"reply_to_session_id,omitempty"`
	ContentType      string     `json:"content_type,omitempty"`
	Properties       Properties `json:"application_properties,omitempty"`
}

// Rule is a rule of a subscription.
type Rule struct {
	Name string `json:"name"`
	RuleSettings
	CreatedAt time.Time `json:"created_at"`
	Tagged
}

// RuleTestRequest is a message whose way through a topic's rules is asked for. It is not sent.
type RuleTestRequest struct {
	Message      NewMessage    `json:"message"`
	Subscription string        `json:"subscription,omitempty" doc:"only the rules of this one; default: of all"`
	Rule         *RuleSettings `json:"rule,omitempty" doc:"a rule that no subscription has, to be judged as well"`
}

// RuleTest says which rules of a topic select a message.
type RuleTest struct {
	Rule          *RuleVerdict       `json:"rule,omitempty" doc:"of the rule in the request"`
	Subscriptions []SubscriptionTest `json:"subscriptions" doc:"by name"`
	More          bool               `json:"more" doc:"there are more subscriptions, with too many rules for one answer: name one"`
}

// SubscriptionTest says what a subscription gets of a message.
type SubscriptionTest struct {
	Subscription string        `json:"subscription"`
	Copies       int           `json:"copies" doc:"that it gets"`
	DeadLettered bool          `json:"dead_lettered" doc:"a rule cannot be evaluated, or a copy not be made, so the message goes to the dead-letter subqueue"`
	Rules        []RuleVerdict `json:"rules" doc:"by name"`
}

// RuleVerdict says what one rule does with a message.
type RuleVerdict struct {
	Rule   string      `json:"rule"`
	Result string      `json:"result" enum:"selected,not_selected,error"`
	Why    string      `json:"why,omitempty" doc:"why it is not selected, or what is wrong"`
	Copy   *NewMessage `json:"copy,omitempty" doc:"without its body, as the rule's action leaves it; left out when the answer grows too long"`
}

// The results of rules.
const (
	RuleSelected    = "selected"
	RuleNotSelected = "not_selected"
	RuleFailed      = "error"
)

// MaxRulesPerTest is how many rules a test judges at least, if there are so many. It judges all
// rules of a subscription or none.
const MaxRulesPerTest = 1000

// Limits on topics. They follow Azure Service Bus (service-bus-quotas).
const (
	MaxTopics            = 1000 // of one tenant
	MaxSubscriptions     = 2000 // of one topic
	MaxEventListeners    = 100  // subscriptions of one topic that only Forebay publishes to
	MaxSubscriptionBytes = 50   // of a subscription's or a rule's name
	MaxRules             = 100  // of one subscription
	MaxSQLFilters        = 2000 // of one topic's subscriptions together
)

// DefaultRule is the rule of a new subscription that is created without rules. It selects all
// messages.
const DefaultRule = "$Default"

// TopicSettings create or change a topic. Zero values stand for the defaults. nil stands for what
// an existing topic has, and so does a status that is left out.
type TopicSettings struct {
	DefaultTTLSeconds       float64 `json:"default_message_ttl_seconds,omitempty" doc:"time to live of messages that ask for none, and the most they may ask for; default: unlimited"`
	DetectsDuplicates       *bool   `json:"requires_duplicate_detection,omitempty" doc:"a message that repeats a message_id is dropped; settled when the topic is made; default false"`
	DuplicateWindowSeconds  float64 `json:"duplicate_detection_window_seconds,omitempty" doc:"how long message ids are remembered for that: 20 to 604800; default 600"`
	AutoDeleteOnIdleSeconds float64 `json:"auto_delete_on_idle_seconds,omitempty" doc:"the topic is deleted, with its subscriptions, once nobody has sent to it or used a subscription of it for so long: at least 300; default: never"`
	MaxMessageBytes         int64   `json:"max_message_bytes,omitempty" doc:"the largest message that may be sent to it, below what the server allows: 1 to 104857600; default: what the server allows"`
	EntityChange
}

// Topic is a topic with its settings and counts.
type Topic struct {
	Name                    string   `json:"name"`
	Subscriptions           int64    `json:"subscriptions"`
	Scheduled               int64    `json:"scheduled" doc:"messages that wait for their time, and go to the subscriptions then"`
	CountsCapped            bool     `json:"counts_capped,omitempty" doc:"a count stopped at its limit: there are at least so many"`
	DefaultTTLSeconds       *float64 `json:"default_message_ttl_seconds" doc:"null: unlimited"`
	DetectsDuplicates       bool     `json:"requires_duplicate_detection"`
	DuplicateWindowSeconds  *float64 `json:"duplicate_detection_window_seconds" doc:"null: duplicates are not detected"`
	AutoDeleteOnIdleSeconds *float64 `json:"auto_delete_on_idle_seconds" doc:"null: never"`
	MaxMessageBytes         int64    `json:"max_message_bytes,omitempty" doc:"left out: what the server allows"`
	EntityState
}

// SubscriptionSettings create or change a subscription. They are those of a queue of messages,
// with some of their own. Duplicate detection is left out because it is the topic's.
type SubscriptionSettings struct {
	MessageQueueSettings
	DeadLetterOnFilterError *bool     `json:"dead_letter_on_filter_error,omitempty" doc:"a message that a rule cannot be evaluated for goes to the dead-letter subqueue; default true"`
	Rules                   []NewRule `json:"rules,omitzero" maxItems:"100" doc:"when the subscription is made: its rules instead of $Default, which selects all messages"`
}

// NewRule is a rule to create.
type NewRule struct {
	Name string `json:"name"`
	RuleSettings
}

// Subscription is a subscription with its settings and counts.
type Subscription struct {
	Topic string `json:"topic"`
	MessageQueue
	DeadLetterOnFilterError bool `json:"dead_letter_on_filter_error"`
}

// CutEntityPath splits the path of a queue, a subscription (see [SubscriptionPath]) or a subqueue
// of either. The subqueue begins with a dollar sign, as no name does. A missing part is "". Like
// Service Bus it accepts "subscriptions" in any case. A malformed path is returned whole as the
// name, which is then not valid.
func CutEntityPath(path string) (name, subscription, subqueue string) {
	for at := range len(path) {
		if path[at] != '/' {
			continue
		}
		part, rest, _ := strings.Cut(path[at+1:], "/")
		switch {
		case strings.EqualFold(part, "subscriptions"):
			subscription, subqueue, more := strings.Cut(rest, "/")
			if subscription == "" || more && subqueue == "" {
				return path, "", ""
			}
			return path[:at], subscription, subqueue
		case strings.HasPrefix(part, "$"):
			return path[:at], "", path[at+1:]
		}
	}
	return path, "", ""
}

// SubscriptionPath returns the path that addresses a subscription where a queue is expected.
func SubscriptionPath(topic, subscription string) string {
	return topic + "/subscriptions/" + subscription
}

// ValidEntityPath reports whether s is the path of a queue, a topic or a subscription.
func ValidEntityPath(s string) bool {
	name, subscription, subqueue := CutEntityPath(s)
	return ValidEntityName(name) && subqueue == "" &&
		(subscription == "" || ValidName(subscription) && len(subscription) <= MaxSubscriptionBytes)
}
