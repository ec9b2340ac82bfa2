package forebay

import "time"

// RuleSettings are what a rule of a subscription says: which messages it selects and how it changes its
// copy of them. At most one of the filters is set; without any, the rule selects all messages.
type RuleSettings struct {
	SQLFilter         string             `json:"sql_filter,omitempty" doc:"a condition on the message's properties, at most 1,024 characters"`
	CorrelationFilter *CorrelationFilter `json:"correlation_filter,omitempty" doc:"properties that must have these values, all of them"`
	BooleanFilter     *bool              `json:"boolean_filter,omitempty" doc:"true: selects all messages; false: none"`
	SQLAction         string             `json:"sql_action,omitempty" doc:"statements that change the copy, at most 1,024 characters; a rule with an action makes a copy of its own, with the application property RuleName"`
}

// CorrelationFilter names properties and the values they must have. "" stands for any.
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
}
