package atom

import (
	"slices"
	"time"

	"github.com/forebayhq/forebay"
)

// authorizationRules are keys of one entity. Forebay gives them back and does not let them in: its
// API keys do that.
type authorizationRules struct {
	Rules []authorizationRule `xml:"AuthorizationRule"`
}

// authorizationRule is a shared access key. Its times are kept as text.
type authorizationRule struct {
	Type         string   `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr" json:"-"`
	ClaimType    string   `xml:"ClaimType" json:"-"`
	ClaimValue   string   `xml:"ClaimValue" json:"-"`
	Rights       []string `xml:"Rights>AccessRights" json:"rights,omitempty"`
	CreatedTime  string   `xml:"CreatedTime" json:"created_time,omitempty"`
	ModifiedTime string   `xml:"ModifiedTime" json:"modified_time,omitempty"`
	KeyName      string   `xml:"KeyName" json:"key_name"`
	PrimaryKey   string   `xml:"PrimaryKey" json:"primary_key,omitempty"`
	SecondaryKey string   `xml:"SecondaryKey" json:"secondary_key,omitempty"`
}

// read checks the rules.
func (a *authorizationRules) read(r *reader) []authorizationRule {
	if a == nil {
		return nil
	}
	const element = "AuthorizationRules"
	if len(a.Rules) > maxRules {
		r.fail(element, "may be at most %d", maxRules)
		return nil
	}
	for _, rule := range a.Rules {
		for _, s := range []string{rule.KeyName, rule.PrimaryKey, rule.SecondaryKey} {
			if s != "" && !forebay.ValidText(s, maxAuthorizations) {
				r.fail(element, "has names and keys of at most %d bytes without control characters", maxAuthorizations)
			}
		}
		if rule.KeyName == "" {
			r.fail(element, "needs a KeyName in each rule")
		}
		for _, right := range rule.Rights {
			if !slices.Contains([]string{"Manage", "Send", "Listen"}, right) {
				r.fail(element, "has the rights Manage, Send and Listen")
			}
		}
		if len(rule.Rights) > 3 {
			r.fail(element, "has three rights at most")
		}
		for _, at := range []string{rule.CreatedTime, rule.ModifiedTime} {
			if _, err := time.Parse(time.RFC3339Nano, at); at != "" && err != nil {
				r.fail(element, "has times of RFC 3339")
			}
		}
	}
	return a.Rules
}
