package keys

import (
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
)

// maxEntities is how many entities a key is bound to at most.
const maxEntities = 32

// checkEntities returns the entities that a key is to be bound to, as they are stored. A key with
// other scopes than those of messages could do things outside of them, so it is refused.
func checkEntities(entities []string, scopes []forebay.Scope) ([]string, error) {
	if len(entities) == 0 {
		return nil, nil
	}
	if len(entities) > maxEntities {
		return nil, forebay.Invalid("entities", "must be at most %d", maxEntities)
	}
	for _, scope := range scopes {
		if !scope.ForMessages() {
			return nil, forebay.Invalid("entities", "bind only keys whose scopes are among send, listen and manage, and %q is not", string(scope))
		}
	}
	var checked []string
	for _, path := range entities {
		if !forebay.ValidEntityPath(path) {
			return nil, forebay.Invalid("entities", "%.300q is no name of a queue or a topic, and no TOPIC/subscriptions/NAME", path)
		}
		if topic, subscription, _ := forebay.CutEntityPath(path); subscription != "" {
			path = forebay.SubscriptionPath(topic, subscription)
		}
		if !slices.ContainsFunc(checked, func(other string) bool { return strings.EqualFold(other, path) }) {
			checked = append(checked, path)
		}
	}
	return checked, nil
}
