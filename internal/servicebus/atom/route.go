package atom

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/servicebus/auth"
)

// resource is what the path of a request is about.
type resource int

const (
	aQueueOrTopic resource = iota
	aSubscription
	aRule
	queues
	topics
	subscriptions
	rules
	theNamespace
)

// target is the resource of a request, with the names in its path.
type target struct {
	resource
	name, subscription, rule string
}

// path is how Forebay addresses the entity that the target is, or is below. "" stands for all.
func (t target) path() string {
	switch t.resource {
	case queues, topics, theNamespace:
		return ""
	case aSubscription, aRule, rules:
		return forebay.SubscriptionPath(t.name, t.subscription)
	}
	return t.name
}

// targetOf reads the path of a request. Names of queues and topics may hold slashes, so it begins
// at the end. Case does not matter.
func targetOf(path string) target {
	path = strings.Trim(path, "/")
	switch strings.ToLower(path) {
	case "$namespaceinfo":
		return target{resource: theNamespace}
	case "$resources/queues":
		return target{resource: queues}
	case "$resources/topics":
		return target{resource: topics}
	}
	parts := strings.Split(path, "/")
	n := len(parts)
	is := func(at int, word string) bool { return at > 0 && strings.EqualFold(parts[at], word) }
	topic := func(parts []string) string { return strings.Join(parts, "/") }
	switch {
	case is(n-4, "subscriptions") && is(n-2, "rules"):
		return target{aRule, topic(parts[:n-4]), parts[n-3], parts[n-1]}
	case is(n-3, "subscriptions") && is(n-1, "rules"):
		return target{rules, topic(parts[:n-3]), parts[n-2], ""}
	case is(n-2, "subscriptions"):
		return target{aSubscription, topic(parts[:n-2]), parts[n-1], ""}
	case is(n-1, "subscriptions"):
		return target{subscriptions, topic(parts[:n-1]), "", ""}
	}
	return target{resource: aQueueOrTopic, name: path}
}

// request is a request whose caller is known.
type request struct {
	*http.Request
	target
	grant auth.Grant
	host  string
}

// ServeHTTP serves a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.Header.Get("Authorization") == "" && strings.EqualFold(r.URL.Path, "/health") {
		health(w)
		return
	}
	if err := h.serve(w, r); err != nil {
		h.fail(w, r, err)
	}
}

// health answers what Microsoft's emulator does. Its users wait for it.
func health(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"status":"healthy","message":"Service Bus is healthy."}`))
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	t := targetOf(r.URL.Path)
	grant, err := h.Authorizer.Authorize(r, r.Header.Get("Authorization"), r.URL.Path)
	if err != nil {
		return err
	}
	ctx, release := h.Authorizer.Hold(acting(r.Context(), grant.Caller), grant)
	defer release()
	in := &request{Request: r.WithContext(ctx), target: t, grant: grant, host: hostOf(r)}
	if !in.manages() {
		return in.refused()
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return h.get(w, in)
	case http.MethodPut:
		return h.put(w, in)
	case http.MethodDelete:
		return h.delete(w, in)
	}
	w.Header().Set("Allow", "GET, HEAD, PUT, DELETE")
	return forebay.Errorf(forebay.CodeMethodNotAllowed, "use GET, PUT or DELETE")
}

// refused is the error of a caller who may not manage the entity, in the service's words.
func (r *request) refused() error {
	operation := ""
	switch r.resource {
	case aSubscription:
		operation = "Subscription"
	case aRule:
		operation = "Rule"
	case subscriptions:
		operation = "Subscriptions"
	case rules:
		operation = "Rules"
	}
	if operation == "" {
		switch r.Method {
		case http.MethodPut:
			return unauthorized("Authorization failed for specified action: Manage,EntityWrite.")
		case http.MethodDelete:
			return unauthorized("Authorization failed for specified action: Manage,EntityDelete.")
		}
		return unauthorized("Manage,EntityRead claims required for this operation.")
	}
	verb := "Get"
	switch {
	case r.Method == http.MethodPut:
		verb = "CreateOrUpdate"
	case r.Method == http.MethodDelete:
		verb = "Delete"
	case r.resource == subscriptions || r.resource == rules:
		verb = "Enumerate"
	}
	return unauthorized("401 SubCode=40100: Unauthorized : Unauthorized access for '%s%s' operation on endpoint 'sb://%s/%s'.", verb, operation, r.host, r.path())
}

// hostOf is the host that the client calls, for the addresses in the answer.
func hostOf(r *http.Request) string {
	if forebay.ValidText(r.Host, 256) && !strings.ContainsAny(r.Host, "/\\@?# \"'<>&") {
		return r.Host
	}
	return "localhost"
}

// self is the address of a resource below the namespace.
func (r *request) self(path string) string {
	return r.scheme() + "://" + r.host + "/" + path + "?api-version=" + r.version()
}

func (r *request) scheme() string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// version repeats the client's version of the protocol. All have the same elements.
func (r *request) version() string {
	v := r.URL.Query().Get("api-version")
	if len(v) > 16 || strings.Trim(v, "0123456789-abcdefghijklmnopqrstuvwxyz") != "" || v == "" {
		return "2021-05"
	}
	return v
}

// Limits on pages. The default is the service's. A client takes a page that is shorter than it
// asked for as the last one. So the largest page holds all that a tenant may have.
const (
	defaultPage = 100
	maxPage     = 2000
	maxSkip     = 1 << 30
)

// page reads $skip and $top.
func (r *request) page() (skip, top int, err error) {
	query := r.URL.Query()
	if skip, err = count(query, "$skip", 0, 0, maxSkip); err != nil {
		return 0, 0, err
	}
	top, err = count(query, "$top", defaultPage, 1, maxSkip)
	return skip, min(top, maxPage), err
}

func count(query url.Values, name string, byDefault, least, most int) (int, error) {
	given := query.Get(name)
	if given == "" {
		return byDefault, nil
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < least || n > most {
		return 0, forebay.Invalid(name, "goes from %d to %d", least, most)
	}
	return n, nil
}

// trackingID is a random id that an error and the log have in common.
func trackingID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	u := forebay.UUID(id)
	return u.String() + "_" + strings.ToUpper(hex.EncodeToString(id[:1]))
}
