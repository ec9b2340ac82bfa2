package atom

import (
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
)

// description is what a client sends about a queue, a topic or a subscription. The service wants
// the elements in one order; clients differ a little, so any order will do. Elements that are not
// listed, such as counts, are for reading only or say nothing here.
type description struct {
	LockDuration                        *string `xml:"LockDuration"`
	MaxSizeInMegabytes                  *string `xml:"MaxSizeInMegabytes"`
	RequiresDuplicateDetection          *string `xml:"RequiresDuplicateDetection"`
	RequiresSession                     *string `xml:"RequiresSession"`
	DefaultMessageTimeToLive            *string `xml:"DefaultMessageTimeToLive"`
	DeadLetteringOnMessageExpiration    *string `xml:"DeadLetteringOnMessageExpiration"`
	DeadLetteringOnFilterErrors         *string `xml:"DeadLetteringOnFilterEvaluationExceptions"`
	DuplicateDetectionHistoryTimeWindow *string `xml:"DuplicateDetectionHistoryTimeWindow"`
	MaxDeliveryCount                    *string `xml:"MaxDeliveryCount"`
	EnableBatchedOperations             *string `xml:"EnableBatchedOperations"`
	Status                              *string `xml:"Status"`
	ForwardTo                           *string `xml:"ForwardTo"`
	ForwardDeadLetteredMessagesTo       *string `xml:"ForwardDeadLetteredMessagesTo"`
	UserMetadata                        *string `xml:"UserMetadata"`
	AutoDeleteOnIdle                    *string `xml:"AutoDeleteOnIdle"`
	EnablePartitioning                  *string `xml:"EnablePartitioning"`
	EnableSubscriptionPartitioning      *string `xml:"EnableSubscriptionPartitioning"`
	FilteringMessagesBeforePublishing   *string `xml:"FilteringMessagesBeforePublishing"`
	IsAnonymousAccessible               *string `xml:"IsAnonymousAccessible"`
	EnableExpress                       *string `xml:"EnableExpress"`
	SupportOrdering                     *string `xml:"SupportOrdering"`
	MaxMessageSizeInKilobytes           *string `xml:"MaxMessageSizeInKilobytes"`

	AuthorizationRules     *authorizationRules `xml:"AuthorizationRules"`
	DefaultRuleDescription *ruleInput          `xml:"DefaultRuleDescription"`
}

// kept is what Forebay only gives back. It is stored as the attributes of an entity.
type kept struct {
	MaxSizeInMegabytes                int64               `json:"max_size_in_megabytes,omitempty"`
	EnableBatchedOperations           *bool               `json:"enable_batched_operations,omitempty"`
	EnablePartitioning                *bool               `json:"enable_partitioning,omitempty"`
	EnableSubscriptionPartitioning    *bool               `json:"enable_subscription_partitioning,omitempty"`
	EnableExpress                     *bool               `json:"enable_express,omitempty"`
	SupportOrdering                   *bool               `json:"support_ordering,omitempty"`
	FilteringMessagesBeforePublishing *bool               `json:"filtering_messages_before_publishing,omitempty"`
	IsAnonymousAccessible             *bool               `json:"is_anonymous_accessible,omitempty"`
	DuplicateWindow                   string              `json:"duplicate_detection_history_time_window,omitempty"` // of an entity that does not detect duplicates
	ForwardTo                         string              `json:"forward_to,omitempty"`                              // as the client wrote it
	ForwardDeadLettersTo              string              `json:"forward_dead_lettered_messages_to,omitempty"`
	AuthorizationRules                []authorizationRule `json:"authorization_rules,omitempty"`
}

// keptOf reads the attributes of an entity.
func keptOf(attributes string) (k kept) {
	if attributes != "" {
		_ = json.Unmarshal([]byte(attributes), &k) // only this package wrote them
	}
	return k
}

// The partitions of a partitioned entity, and the largest size of one in MiB (Service Bus
// documentation, "service-bus-partitioning"). A size is reported for all partitions together.
const (
	partitions        = 16
	maxPartitionSize  = 5120
	defaultSize       = 1024
	maxSize           = 1 << 20 // MiB
	maxForwardBytes   = 512
	maxRules          = 12 // authorization rules of one entity (service-bus-quotas)
	maxAuthorizations = 256
)

// reader reads the elements of a description and remembers the first error.
type reader struct{ err error }

func (r *reader) fail(element, format string, args ...any) {
	if r.err == nil {
		r.err = forebay.Invalid(element, format, args...)
	}
}

func (r *reader) boolean(name string, element *string) *bool {
	var v bool
	switch text(element) {
	case "":
		return nil
	case "true", "True", "1":
		v = true
	case "false", "False", "0":
	default:
		r.fail(name, "must be true or false")
	}
	return &v
}

// number returns 0 if the element is absent.
func (r *reader) number(name string, element *string, least, most int64) int64 {
	if text(element) == "" {
		return 0
	}
	n, err := strconv.ParseInt(text(element), 10, 64)
	if err != nil || n < least || n > most {
		r.fail(name, "goes from %d to %d", least, most)
	}
	return n
}

// duration returns 0 if the element is absent or means forever, or is so long that Forebay sets no
// limit instead.
func (r *reader) duration(name string, element *string, longest float64) float64 {
	if text(element) == "" {
		return 0
	}
	t, err := parseDuration(text(element))
	if err == nil && t == 0 {
		r.fail(name, "must be longer than 0")
	}
	if err != nil {
		r.fail(name, "%s", err)
	}
	if t.seconds() > longest {
		return 0
	}
	return t.seconds()
}

var longestTime = forebay.MaxTimeToLive.Seconds()

// settings translates a description. Absent elements get their defaults.
func (d *description) settings(kind Kind) (s forebay.SubscriptionSettings, k kept, err error) {
	var r reader
	s.DefaultTTLSeconds = r.duration("DefaultMessageTimeToLive", d.DefaultMessageTimeToLive, longestTime)
	s.AutoDeleteOnIdleSeconds = r.duration("AutoDeleteOnIdle", d.AutoDeleteOnIdle, longestTime)
	s.Status = r.status(d.Status)
	metadata := ""
	if d.UserMetadata != nil {
		metadata = *d.UserMetadata
	}
	s.UserMetadata = &metadata
	if kind != Topic {
		s.LockSeconds = r.duration("LockDuration", d.LockDuration, math.Inf(1))
		s.MaxDeliveryCount = int(r.number("MaxDeliveryCount", d.MaxDeliveryCount, 1, forebay.MaxMaxDeliveryCount))
		s.RequiresSession = r.boolean("RequiresSession", d.RequiresSession)
		s.DeadLetterOnExpiration = isTrue(r.boolean("DeadLetteringOnMessageExpiration", d.DeadLetteringOnMessageExpiration))
		s.ForwardTo, k.ForwardTo = r.target("ForwardTo", d.ForwardTo)
		s.ForwardDeadLettersTo, k.ForwardDeadLettersTo = r.target("ForwardDeadLetteredMessagesTo", d.ForwardDeadLetteredMessagesTo)
	}
	if kind != Subscription {
		s.DetectsDuplicates = r.boolean("RequiresDuplicateDetection", d.RequiresDuplicateDetection)
		s.DuplicateWindowSeconds = r.duration("DuplicateDetectionHistoryTimeWindow", d.DuplicateDetectionHistoryTimeWindow, math.Inf(1))
		if kb := r.number("MaxMessageSizeInKilobytes", d.MaxMessageSizeInKilobytes, 1, forebay.MaxEntityMessage>>10); kb > 0 {
			s.MaxMessageBytes = kb << 10
		}
	} else {
		s.DeadLetterOnFilterError = r.boolean("DeadLetteringOnFilterEvaluationExceptions", d.DeadLetteringOnFilterErrors)
		if s.Rules, err = d.DefaultRuleDescription.first(); err != nil {
			return s, k, err
		}
	}
	d.keep(&r, kind, &k)
	return s, k, r.err
}

// keep reads what is only given back.
func (d *description) keep(r *reader, kind Kind, k *kept) {
	k.EnableBatchedOperations = r.boolean("EnableBatchedOperations", d.EnableBatchedOperations)
	k.AuthorizationRules = d.AuthorizationRules.read(r)
	if kind == Subscription {
		return
	}
	k.EnablePartitioning = r.boolean("EnablePartitioning", d.EnablePartitioning)
	k.EnableExpress = r.boolean("EnableExpress", d.EnableExpress)
	k.SupportOrdering = r.boolean("SupportOrdering", d.SupportOrdering)
	k.IsAnonymousAccessible = r.boolean("IsAnonymousAccessible", d.IsAnonymousAccessible)
	if kind == Topic {
		k.EnableSubscriptionPartitioning = r.boolean("EnableSubscriptionPartitioning", d.EnableSubscriptionPartitioning)
		k.FilteringMessagesBeforePublishing = r.boolean("FilteringMessagesBeforePublishing", d.FilteringMessagesBeforePublishing)
	}
	k.MaxSizeInMegabytes = r.number("MaxSizeInMegabytes", d.MaxSizeInMegabytes, 1, maxSize)
	if isTrue(k.EnablePartitioning) && k.MaxSizeInMegabytes <= maxPartitionSize {
		k.MaxSizeInMegabytes = max(k.MaxSizeInMegabytes, defaultSize) * partitions
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// statuses are Service Bus's words for Forebay's.
var statuses = map[string]forebay.EntityStatus{
	"Active": forebay.EntityActive, "Disabled": forebay.EntityDisabled, "SendDisabled": forebay.EntitySendDisabled, "ReceiveDisabled": forebay.EntityReceiveDisabled,
}

func (r *reader) status(element *string) forebay.EntityStatus {
	word := text(element)
	if word == "" {
		return forebay.EntityActive
	}
	status, known := statuses[word]
	if !known {
		r.fail("Status", "must be Active, Disabled, SendDisabled or ReceiveDisabled")
	}
	return status
}

// target reads where an entity forwards to: the URI of another entity, or its name. It returns the
// name, and the text as it was written.
func (r *reader) target(element string, value *string) (name, written string) {
	written = text(value)
	name = targetName(written)
	if len(written) > maxForwardBytes || written != "" && name == "" {
		r.fail(element, "must be the URI or the name of a queue or a topic")
	}
	return name, written
}

// targetName is the entity that a URI or a name is about, "" for none.
func targetName(written string) string {
	if strings.Contains(written, "://") {
		u, err := url.Parse(written)
		if err != nil {
			return ""
		}
		written = u.Path
	}
	return strings.Trim(written, "/")
}

// adopt completes settings with what is settled when an entity is made, and checks that a change
// leaves that as it is.
func (k *kept) adopt(s *forebay.SubscriptionSettings, before *Entity) error {
	if before == nil {
		k.window(s, isTrue(s.DetectsDuplicates))
		return nil
	}
	was := keptOf(before.Attributes)
	if k.EnablePartitioning == nil {
		k.EnablePartitioning = was.EnablePartitioning
	}
	for _, c := range []struct {
		given *bool
		was   bool
		error string
	}{
		{s.RequiresSession, before.RequiresSession, "The value for the RequiresSession property of an existing " + before.Kind.String() + " cannot be changed. "},
		{s.DetectsDuplicates, before.DetectsDuplicates, "The value for the RequiresDuplicateDetection property of an existing " + before.Kind.String() + " cannot be changed. "},
		{k.EnablePartitioning, isTrue(was.EnablePartitioning), "Partitioning cannot be changed for " + before.Kind.String() + ". "},
	} {
		if c.given != nil && *c.given != c.was {
			return forebay.Errorf(forebay.CodeInvalidRequest, "%s", c.error)
		}
	}
	if before.Kind != Topic {
		s.RequiresSession = &before.RequiresSession
	}
	if before.Kind != Subscription {
		s.DetectsDuplicates = &before.DetectsDuplicates
		k.window(s, before.DetectsDuplicates)
	}
	s.Rules = nil // an existing subscription keeps its rules
	return nil
}

// window keeps the window of an entity that does not detect duplicates, which is only given back.
func (k *kept) window(s *forebay.SubscriptionSettings, detects bool) {
	if detects || s.DuplicateWindowSeconds == 0 {
		return
	}
	k.DuplicateWindow = ofSeconds(s.DuplicateWindowSeconds).String()
	s.DuplicateWindowSeconds = 0
}

// attributes returns what an entity keeps.
func (k *kept) attributes() (string, error) {
	data, err := json.Marshal(k)
	if err == nil && string(data) == "{}" {
		return "", nil
	}
	return string(data), err
}
