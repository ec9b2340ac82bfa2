package atom

import (
	"encoding/xml"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// The namespaces of answers. Clients look for the prefix i.
const (
	atomNamespace     = "http://www.w3.org/2005/Atom"
	connectNamespace  = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
	instanceNamespace = "http://www.w3.org/2001/XMLSchema-instance"
	schemaNamespace   = "http://www.w3.org/2001/XMLSchema"
	countsNamespace   = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
	guidNamespace     = "http://schemas.microsoft.com/2003/10/Serialization/"
)

// entry is an ATOM entry. Some clients read names from the id and others from the title.
type entry struct {
	XMLName   xml.Name  `xml:"entry"`
	Namespace string    `xml:"xmlns,attr"`
	ID        string    `xml:"id"`
	Title     title     `xml:"title"`
	Published string    `xml:"published"`
	Updated   string    `xml:"updated"`
	Author    string    `xml:"author>name"`
	Link      link      `xml:"link"`
	Content   contentOf `xml:"content"`
}

type title struct {
	Type string `xml:"type,attr"`
	Text string `xml:",chardata"`
}

type link struct {
	XMLName xml.Name `xml:"link"`
	Rel     string   `xml:"rel,attr"`
	Href    string   `xml:"href,attr"`
}

type contentOf struct {
	Type string `xml:"type,attr"`
	Of   any
}

// namespaces are the attributes of a description.
type namespaces struct {
	Connect  string `xml:"xmlns,attr"`
	Instance string `xml:"xmlns:i,attr"`
}

var described = namespaces{connectNamespace, instanceNamespace}

// counts are CountDetails. The client for JavaScript finds them by the one prefix that the element
// declares, and the one for Python by the namespace.
type counts struct {
	Namespace          string `xml:"xmlns:d2p1,attr"`
	Active             int64  `xml:"d2p1:ActiveMessageCount"`
	DeadLetter         int64  `xml:"d2p1:DeadLetterMessageCount"`
	Scheduled          int64  `xml:"d2p1:ScheduledMessageCount"`
	TransferDeadLetter int64  `xml:"d2p1:TransferDeadLetterMessageCount"`
	Transfer           int64  `xml:"d2p1:TransferMessageCount"`
}

// countsOf counts locked and deferred messages as active, as the service does. Clients read 32
// bits.
func countsOf(e *Entity) counts {
	bounded := func(n int64) int64 { return min(n, math.MaxInt32) }
	return counts{Namespace: countsNamespace, Active: bounded(e.Active + e.Locked + e.Deferred), DeadLetter: bounded(e.DeadLetter), Scheduled: bounded(e.Scheduled)}
}

func (c counts) total() int64 { return c.Active + c.DeadLetter + c.Scheduled }

// lifetime are the times of an entity.
type lifetime struct {
	CreatedAt  string
	UpdatedAt  string
	AccessedAt string
}

func lifetimeOf(e *Entity) lifetime {
	var accessed time.Time
	switch {
	case e.AccessedAt != nil:
		accessed = *e.AccessedAt
	case e.Kind == Subscription: // its creation is an access in the service
		accessed = e.CreatedAt
	}
	return lifetime{timeText(e.CreatedAt), timeText(e.UpdatedAt), timeText(accessed)}
}

type rulesOutput struct {
	Rules []ruleKeyOutput `xml:"AuthorizationRule"`
}

type ruleKeyOutput struct {
	Type         string   `xml:"i:type,attr"`
	ClaimType    string   `xml:"ClaimType"`
	ClaimValue   string   `xml:"ClaimValue"`
	Rights       []string `xml:"Rights>AccessRights"`
	CreatedTime  string   `xml:"CreatedTime,omitempty"`
	ModifiedTime string   `xml:"ModifiedTime,omitempty"`
	KeyName      string   `xml:"KeyName"`
	PrimaryKey   string   `xml:"PrimaryKey,omitempty"`
	SecondaryKey string   `xml:"SecondaryKey,omitempty"`
}

func (k *kept) rules() (out rulesOutput) {
	for _, r := range k.AuthorizationRules {
		out.Rules = append(out.Rules, ruleKeyOutput{"SharedAccessAuthorizationRule", "SharedAccessKey", "None", r.Rights, r.CreatedTime, r.ModifiedTime, r.KeyName, r.PrimaryKey, r.SecondaryKey})
	}
	return out
}

// The elements stand in the order of the service.
type (
	queueOutput struct {
		XMLName xml.Name `xml:"QueueDescription"`
		namespaces
		LockDuration                        string
		MaxSizeInMegabytes                  int64
		RequiresDuplicateDetection          bool
		RequiresSession                     bool
		DefaultMessageTimeToLive            string
		DeadLetteringOnMessageExpiration    bool
		DuplicateDetectionHistoryTimeWindow string
		MaxDeliveryCount                    int
		EnableBatchedOperations             bool
		SizeInBytes                         int64
		MessageCount                        int64
		IsAnonymousAccessible               bool
		AuthorizationRules                  rulesOutput
		Status                              string
		ForwardTo                           string `xml:",omitempty"`
		UserMetadata                        string `xml:",omitempty"`
		lifetime
		SupportOrdering               bool
		CountDetails                  counts
		AutoDeleteOnIdle              string
		EnablePartitioning            bool
		EntityAvailabilityStatus      string
		ForwardDeadLetteredMessagesTo string `xml:",omitempty"`
		EnableExpress                 bool
		MaxMessageSizeInKilobytes     int64
	}
	topicOutput struct {
		XMLName xml.Name `xml:"TopicDescription"`
		namespaces
		DefaultMessageTimeToLive            string
		MaxSizeInMegabytes                  int64
		RequiresDuplicateDetection          bool
		DuplicateDetectionHistoryTimeWindow string
		EnableBatchedOperations             bool
		SizeInBytes                         int64
		FilteringMessagesBeforePublishing   bool
		IsAnonymousAccessible               bool
		AuthorizationRules                  rulesOutput
		Status                              string
		UserMetadata                        string `xml:",omitempty"`
		lifetime
		SupportOrdering                bool
		CountDetails                   counts
		SubscriptionCount              int64
		SQLFilterCount                 int64 `xml:"SqlFilterCount"`
		CorrelationFilterCount         int64
		AutoDeleteOnIdle               string
		EnablePartitioning             bool
		EntityAvailabilityStatus       string
		EnableSubscriptionPartitioning bool
		EnableExpress                  bool
		MaxMessageSizeInKilobytes      int64
	}
	subscriptionOutput struct {
		XMLName xml.Name `xml:"SubscriptionDescription"`
		namespaces
		LockDuration                              string
		RequiresSession                           bool
		DefaultMessageTimeToLive                  string
		DeadLetteringOnMessageExpiration          bool
		DeadLetteringOnFilterEvaluationExceptions bool
		MessageCount                              int64
		MaxDeliveryCount                          int
		EnableBatchedOperations                   bool
		Status                                    string
		ForwardTo                                 string `xml:",omitempty"`
		lifetime
		UserMetadata                  string `xml:",omitempty"`
		CountDetails                  counts
		AutoDeleteOnIdle              string
		ForwardDeadLetteredMessagesTo string `xml:",omitempty"`
		EntityAvailabilityStatus      string
	}
)

const available = "Available"

// orForever writes a duration, of which nil is none.
func orForever(seconds *float64) string {
	if seconds == nil {
		return forever.String()
	}
	return ofSeconds(*seconds).String()
}

func statusText(s forebay.EntityStatus) string {
	for word, status := range statuses {
		if status == s {
			return word
		}
	}
	return "Active"
}

// orTrue is the value of an option that is on by default.
func orTrue(b *bool) bool { return b == nil || *b }

func (k *kept) size() int64 {
	if k.MaxSizeInMegabytes == 0 {
		return defaultSize
	}
	return k.MaxSizeInMegabytes
}

// windowText is the window of duplicate detection, or the one that was set without it.
func (k *kept) windowText(e *Entity) string {
	switch {
	case e.DuplicateWindowSeconds != nil:
		return ofSeconds(*e.DuplicateWindowSeconds).String()
	case k.DuplicateWindow != "":
		return k.DuplicateWindow
	}
	return ofSeconds(forebay.DefaultDuplicateWindow.Seconds()).String()
}

// forwardText is the target of forwarding as it was written, unless it has changed since.
func forwardText(host, name, written string) string {
	if name == "" || strings.EqualFold(targetName(written), name) {
		if name == "" {
			return ""
		}
		return written
	}
	return "sb://" + host + "/" + name
}

// describe writes an entity as its description.
func (h *Handler) describe(host string, e *Entity) any {
	k := keptOf(e.Attributes)
	c := countsOf(e)
	largest := e.MaxMessageBytes
	if largest == 0 {
		largest = h.MaxMessageBytes
	}
	switch e.Kind {
	case Queue:
		return queueOutput{
			namespaces: described, LockDuration: ofSeconds(e.LockSeconds).String(), MaxSizeInMegabytes: k.size(),
			RequiresDuplicateDetection: e.DetectsDuplicates, RequiresSession: e.RequiresSession, DefaultMessageTimeToLive: orForever(e.DefaultTTLSeconds),
			DeadLetteringOnMessageExpiration: e.DeadLetterOnExpiration, DuplicateDetectionHistoryTimeWindow: k.windowText(e), MaxDeliveryCount: e.MaxDeliveryCount,
			EnableBatchedOperations: orTrue(k.EnableBatchedOperations), SizeInBytes: e.SizeBytes, MessageCount: c.total(), IsAnonymousAccessible: isTrue(k.IsAnonymousAccessible),
			AuthorizationRules: k.rules(), Status: statusText(e.Status), ForwardTo: forwardText(host, e.ForwardTo, k.ForwardTo), UserMetadata: e.UserMetadata,
			lifetime: lifetimeOf(e), SupportOrdering: orTrue(k.SupportOrdering), CountDetails: c, AutoDeleteOnIdle: orForever(e.AutoDeleteOnIdleSeconds),
			EnablePartitioning: isTrue(k.EnablePartitioning), EntityAvailabilityStatus: available,
			ForwardDeadLetteredMessagesTo: forwardText(host, e.ForwardDeadLettersTo, k.ForwardDeadLettersTo), EnableExpress: isTrue(k.EnableExpress),
			MaxMessageSizeInKilobytes: largest >> 10,
		}
	case Topic:
		return topicOutput{
			namespaces: described, DefaultMessageTimeToLive: orForever(e.DefaultTTLSeconds), MaxSizeInMegabytes: k.size(), RequiresDuplicateDetection: e.DetectsDuplicates,
			DuplicateDetectionHistoryTimeWindow: k.windowText(e), EnableBatchedOperations: orTrue(k.EnableBatchedOperations), SizeInBytes: e.SizeBytes,
			FilteringMessagesBeforePublishing: isTrue(k.FilteringMessagesBeforePublishing), IsAnonymousAccessible: isTrue(k.IsAnonymousAccessible), AuthorizationRules: k.rules(),
			Status: statusText(e.Status), UserMetadata: e.UserMetadata, lifetime: lifetimeOf(e), SupportOrdering: orTrue(k.SupportOrdering), CountDetails: c,
			SubscriptionCount: e.Subscriptions, SQLFilterCount: e.SQLFilters, CorrelationFilterCount: e.CorrelationFilters, AutoDeleteOnIdle: orForever(e.AutoDeleteOnIdleSeconds), EnablePartitioning: isTrue(k.EnablePartitioning),
			EntityAvailabilityStatus: available, EnableSubscriptionPartitioning: isTrue(k.EnableSubscriptionPartitioning), EnableExpress: isTrue(k.EnableExpress),
			MaxMessageSizeInKilobytes: largest >> 10,
		}
	}
	return subscriptionOutput{
		namespaces: described, LockDuration: ofSeconds(e.LockSeconds).String(), RequiresSession: e.RequiresSession, DefaultMessageTimeToLive: orForever(e.DefaultTTLSeconds),
		DeadLetteringOnMessageExpiration: e.DeadLetterOnExpiration, DeadLetteringOnFilterEvaluationExceptions: e.DeadLetterOnFilterError, MessageCount: c.total(),
		MaxDeliveryCount: e.MaxDeliveryCount, EnableBatchedOperations: orTrue(k.EnableBatchedOperations), Status: statusText(e.Status),
		ForwardTo: forwardText(host, e.ForwardTo, k.ForwardTo), lifetime: lifetimeOf(e), UserMetadata: e.UserMetadata, CountDetails: c, AutoDeleteOnIdle: orForever(e.AutoDeleteOnIdleSeconds),
		ForwardDeadLetteredMessagesTo: forwardText(host, e.ForwardDeadLettersTo, k.ForwardDeadLettersTo), EntityAvailabilityStatus: available,
	}
}

// namespaceOutput says what the namespace is. Forebay takes messages of 1 MiB and sets their limit
// for each entity, as the service's Premium tier does.
type namespaceOutput struct {
	XMLName xml.Name `xml:"NamespaceInfo"`
	namespaces
	CreatedTime    string
	MessagingSKU   string
	MessagingUnits int
	ModifiedTime   string
	Name           string
	NamespaceType  string
}

type (
	ruleOutput struct {
		XMLName xml.Name `xml:"RuleDescription"`
		namespaces
		Filter    filterOutput
		Action    actionOutput
		CreatedAt string
		Name      string
	}
	filterOutput struct {
		Type               string `xml:"i:type,attr"`
		CorrelationID      string `xml:"CorrelationId,omitempty"`
		MessageID          string `xml:"MessageId,omitempty"`
		To                 string `xml:",omitempty"`
		ReplyTo            string `xml:",omitempty"`
		Label              string `xml:",omitempty"`
		SessionID          string `xml:"SessionId,omitempty"`
		ReplyToSessionID   string `xml:"ReplyToSessionId,omitempty"`
		ContentType        string `xml:",omitempty"`
		Properties         *keyValuesOutput
		SQLExpression      string `xml:"SqlExpression,omitempty"`
		CompatibilityLevel int    `xml:",omitempty"`
		Parameters         *keyValuesOutput
	}
	actionOutput struct {
		Type               string `xml:"i:type,attr"`
		SQLExpression      string `xml:"SqlExpression,omitempty"`
		CompatibilityLevel int    `xml:",omitempty"`
		Parameters         *keyValuesOutput
	}
	keyValuesOutput struct {
		List []keyValueOutput `xml:"KeyValueOfstringanyType"`
	}
	keyValueOutput struct {
		Key   string
		Value valueOutput
	}
	// valueOutput is a value. Clients cut five characters off its type.
	valueOutput struct {
		Type   string `xml:"i:type,attr"`
		Schema string `xml:"xmlns:d6p1,attr"`
		Text   string `xml:",chardata"`
	}
)

// compatibilityLevel is that of all SQL filters.
const compatibilityLevel = 20

func valuesOutput(p forebay.Properties) *keyValuesOutput {
	if len(p) == 0 {
		return nil
	}
	out := &keyValuesOutput{}
	for name, v := range p {
		typed, text := typeAndText(v)
		schema := schemaNamespace
		if typed == "guid" {
			schema = guidNamespace
		}
		out.List = append(out.List, keyValueOutput{name, valueOutput{"d6p1:" + typed, schema, text}})
	}
	slices.SortFunc(out.List, func(a, b keyValueOutput) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// describeRule writes a rule as its description.
func describeRule(r forebay.Rule) ruleOutput {
	out := ruleOutput{namespaces: described, CreatedAt: timeText(r.CreatedAt), Name: r.Name, Action: actionOutput{Type: emptyAction}}
	switch c := r.CorrelationFilter; {
	case c != nil:
		out.Filter = filterOutput{Type: correlationFilter, CorrelationID: c.CorrelationID, MessageID: c.MessageID, To: c.To, ReplyTo: c.ReplyTo, Label: c.Subject,
			SessionID: c.SessionID, ReplyToSessionID: c.ReplyToSessionID, ContentType: c.ContentType, Properties: valuesOutput(c.Properties)}
	case r.SQLFilter != "":
		out.Filter = filterOutput{Type: sqlFilter, SQLExpression: r.SQLFilter, CompatibilityLevel: compatibilityLevel, Parameters: valuesOutput(r.SQLFilterParameters)}
	case r.BooleanFilter != nil && !*r.BooleanFilter:
		out.Filter = filterOutput{Type: falseFilter, SQLExpression: "1=0", CompatibilityLevel: compatibilityLevel}
	default:
		out.Filter = filterOutput{Type: trueFilter, SQLExpression: "1=1", CompatibilityLevel: compatibilityLevel}
	}
	if r.SQLAction != "" {
		out.Action = actionOutput{Type: sqlAction, SQLExpression: r.SQLAction, CompatibilityLevel: compatibilityLevel, Parameters: valuesOutput(r.SQLActionParameters)}
	}
	return out
}
