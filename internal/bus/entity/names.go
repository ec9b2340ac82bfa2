package entity

import (
	"strings"

	"github.com/forebayhq/forebay"
)

// subscriptionInfix stands between the names of a topic and its subscription.
const subscriptionInfix = "/subscriptions/"

// OperationsTopic is the stored name of the topic for events of deployments.
const OperationsTopic = forebay.DefaultTenant + "/" + forebay.TopicOperations

// StoredName is how the store knows a tenant's queue.
func StoredName(tenant, name string) string { return tenant + "/" + name }

// NameOf is what its tenant calls a queue of that name in the store.
func NameOf(stored string) string {
	_, name, _ := strings.Cut(stored, "/")
	return name
}

// SubscriptionName returns the stored name of a subscription of the topic with that stored name.
func SubscriptionName(topic, subscription string) string {
	return topic + subscriptionInfix + subscription
}

// SubscriptionOf returns the name of a subscription within its topic.
func SubscriptionOf(stored string) string {
	return stored[strings.LastIndex(stored, subscriptionInfix)+len(subscriptionInfix):]
}

// Fold returns a stored name in the form in which names that differ only in case are equal, as
// SQL's lower does it. Names have only ASCII letters.
func Fold(stored string) string { return strings.ToLower(stored) }

// IsSubscription reports whether the stored name is that of a subscription.
func IsSubscription(stored string) bool { return strings.Contains(stored, subscriptionInfix) }

// OnlyForebayPublishes reports whether only Forebay may publish to the topic of that stored name.
// Subscribers, and receivers of signed webhooks, rely on what it holds.
func OnlyForebayPublishes(stored string) bool {
	return stored == OperationsTopic || NameOf(stored) == forebay.TopicJobEvents
}

// ValidName reports whether a queue or, by its path, a subscription may have that name.
func ValidName(name string) bool {
	topic, subscription, some := strings.Cut(name, subscriptionInfix)
	return forebay.ValidEntityName(topic) && (!some || ValidSubscription(subscription))
}

// ValidSubscription reports whether s may name a subscription within its topic.
func ValidSubscription(s string) bool {
	return forebay.ValidName(s) && len(s) <= forebay.MaxSubscriptionBytes
}

// CheckName reports what is wrong with the name of a queue or a topic.
func CheckName(field, name string) error {
	if forebay.ValidEntityName(name) {
		return nil
	}
	return forebay.Invalid(field, "must be 1 to %d letters, digits, dots, underscores, hyphens, tildes and slashes, beginning with a letter or digit, "+
		"with more than dots between slashes, and without /subscriptions", forebay.MaxEntityBytes)
}
