package atom

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// The types of filters and actions.
const (
	trueFilter        = "TrueFilter"
	falseFilter       = "FalseFilter"
	sqlFilter         = "SqlFilter"
	correlationFilter = "CorrelationFilter"
	sqlAction         = "SqlRuleAction"
	emptyAction       = "EmptyRuleAction"
)

// ruleInput is what a client sends about a rule.
type ruleInput struct {
	Name   *string      `xml:"Name"`
	Filter *filterInput `xml:"Filter"`
	Action *struct {
		Type       string     `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
		Expression *string    `xml:"SqlExpression"`
		Parameters *keyValues `xml:"Parameters"`
	} `xml:"Action"`
}

type filterInput struct {
	Type       string     `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
	Expression *string    `xml:"SqlExpression"`
	Parameters *keyValues `xml:"Parameters"`

	CorrelationID    string     `xml:"CorrelationId"`
	MessageID        string     `xml:"MessageId"`
	To               string     `xml:"To"`
	ReplyTo          string     `xml:"ReplyTo"`
	Label            string     `xml:"Label"`
	SessionID        string     `xml:"SessionId"`
	ReplyToSessionID string     `xml:"ReplyToSessionId"`
	ContentType      string     `xml:"ContentType"`
	Properties       *keyValues `xml:"Properties"`
}

// keyValues are named values of several types.
type keyValues struct {
	List []struct {
		Key   string `xml:"Key"`
		Value struct {
			Type string `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
			Text string `xml:",chardata"`
		} `xml:"Value"`
	} `xml:"KeyValueOfstringanyType"`
}

// properties reads the values. at names the element in errors.
func (k *keyValues) properties(at string) (forebay.Properties, error) {
	if k == nil || len(k.List) == 0 {
		return nil, nil
	}
	p := forebay.Properties{}
	for _, kv := range k.List {
		if _, twice := p[kv.Key]; twice {
			return nil, forebay.Invalid(at, "has the name %q twice", kv.Key)
		}
		v, err := value(kv.Value.Type, kv.Value.Text)
		if err != nil {
			return nil, forebay.Invalid(at, "%q: %s", kv.Key, err)
		}
		p[kv.Key] = v
	}
	return p, nil
}

// value reads a value of a type of XML Schema, or of .NET's serialization. Its prefix says
// nothing.
func value(typed, text string) (any, error) {
	if _, local, prefixed := strings.Cut(typed, ":"); prefixed {
		typed = local
	}
	trimmed := strings.TrimSpace(text)
	switch typed {
	case "string", "char", "anyURI":
		return text, nil
	case "int", "long", "short", "byte", "unsignedByte", "unsignedShort", "unsignedInt", "unsignedLong":
		n, err := strconv.ParseInt(trimmed, 10, 64)
		if err != nil {
			return nil, forebay.Errorf(forebay.CodeInvalidRequest, "is not an integer of 64 bits")
		}
		return n, nil
	case "double", "float", "decimal":
		x, err := strconv.ParseFloat(trimmed, 64)
		if err != nil {
			return nil, forebay.Errorf(forebay.CodeInvalidRequest, "is not a number")
		}
		return x, nil
	case "boolean":
		switch trimmed {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
		return nil, forebay.Errorf(forebay.CodeInvalidRequest, "must be true or false")
	case "dateTime":
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02"} {
			if at, err := time.Parse(layout, trimmed); err == nil {
				return at.UTC(), nil
			}
		}
		return nil, forebay.Errorf(forebay.CodeInvalidRequest, "is not a time of ISO 8601")
	case "guid":
		return forebay.ParseUUID(trimmed)
	case "base64Binary":
		data, err := base64.StdEncoding.DecodeString(trimmed)
		if err != nil {
			return nil, forebay.Errorf(forebay.CodeInvalidRequest, "is not Base64")
		}
		return data, nil
	case "duration":
		return nil, forebay.Errorf(forebay.CodeInvalidRequest, "is a duration: rules compare no durations here; use a number of seconds")
	}
	return nil, forebay.Errorf(forebay.CodeInvalidRequest, "needs an i:type that is string, int, long, double, boolean, dateTime, guid or base64Binary")
}

// settings translates a rule.
func (r *ruleInput) settings() (s forebay.RuleSettings, err error) {
	if r.Filter == nil {
		return s, r.action(&s)
	}
	f := r.Filter
	kind := localType(f.Type)
	if kind == "" && text(f.Expression) != "" {
		kind = sqlFilter
	}
	switch kind {
	case trueFilter, falseFilter:
		selects := kind == trueFilter
		s.BooleanFilter = &selects
	case sqlFilter:
		if text(f.Expression) == "" {
			return s, forebay.Invalid("Filter", "needs a SqlExpression")
		}
		s.SQLFilter = *f.Expression
		if s.SQLFilterParameters, err = f.Parameters.properties("Filter.Parameters"); err != nil {
			return s, err
		}
	case correlationFilter:
		s.CorrelationFilter = &forebay.CorrelationFilter{CorrelationID: f.CorrelationID, MessageID: f.MessageID, SessionID: f.SessionID, Subject: f.Label,
			To: f.To, ReplyTo: f.ReplyTo, ReplyToSessionID: f.ReplyToSessionID, ContentType: f.ContentType}
		if s.CorrelationFilter.Properties, err = f.Properties.properties("Filter.Properties"); err != nil {
			return s, err
		}
	default:
		return s, forebay.Invalid("Filter", "must have the i:type %s, %s, %s or %s", sqlFilter, correlationFilter, trueFilter, falseFilter)
	}
	return s, r.action(&s)
}

func (r *ruleInput) action(s *forebay.RuleSettings) (err error) {
	if r.Action == nil {
		return nil
	}
	switch localType(r.Action.Type) {
	case "", emptyAction, sqlAction:
	default:
		return forebay.Invalid("Action", "must have the i:type %s or %s", sqlAction, emptyAction)
	}
	if text(r.Action.Expression) == "" {
		return nil
	}
	s.SQLAction = *r.Action.Expression
	s.SQLActionParameters, err = r.Action.Parameters.properties("Action.Parameters")
	return err
}

// localType is the name of a type without its prefix.
func localType(t string) string { return t[strings.IndexByte(t, ':')+1:] }

// first returns the rules of a new subscription: nil if the client leaves them to the service.
func (r *ruleInput) first() ([]forebay.NewRule, error) {
	if r == nil {
		return nil, nil
	}
	settings, err := r.settings()
	if err != nil {
		return nil, err
	}
	name := text(r.Name)
	if name == "" {
		name = forebay.DefaultRule
	}
	return []forebay.NewRule{{Name: name, RuleSettings: settings}}, nil
}

// typeAndText writes a value.
func typeAndText(v any) (typed, text string) {
	switch v := v.(type) {
	case int64:
		if v > math.MaxInt32 || v < math.MinInt32 {
			return "long", strconv.FormatInt(v, 10)
		}
		return "int", strconv.FormatInt(v, 10)
	case float64:
		switch {
		case math.IsInf(v, 1):
			return "double", "INF"
		case math.IsInf(v, -1):
			return "double", "-INF"
		}
		return "double", strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return "boolean", strconv.FormatBool(v)
	case time.Time:
		return "dateTime", v.UTC().Format(time.RFC3339Nano)
	case []byte:
		return "base64Binary", base64.StdEncoding.EncodeToString(v)
	case forebay.UUID:
		return "guid", v.String()
	case string:
		return "string", v
	}
	return "string", ""
}
