package atom

import (
	"encoding/xml"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// The types of contents.
const (
	entryType      = "application/atom+xml;type=entry;charset=utf-8"
	feedType       = "application/atom+xml;type=feed;charset=utf-8"
	xmlContent     = "application/xml"
	subscriptionsI = "/Subscriptions/" // some clients look for this case
	rulesI         = "/Rules/"
)

// entry writes a description as an ATOM entry.
func (r *request) entry(path, name string, created, updated time.Time, of any) entry {
	self := r.self(path)
	return entry{Namespace: atomNamespace, ID: self, Title: title{"text", name}, Published: stamp(created), Updated: stamp(updated), Author: r.grant.Caller.Tenant,
		Link: link{Rel: "self", Href: self}, Content: contentOf{xmlContent, of}}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (h *Handler) entityEntry(r *request, e *Entity) entry {
	path := e.Name
	if e.Kind == Subscription {
		path = e.Topic + subscriptionsI + e.Name
	}
	return r.entry(path, e.Name, e.CreatedAt, e.UpdatedAt, h.describe(r.host, e))
}

func (r *request) ruleEntry(subscription Name, rule forebay.Rule) entry {
	return r.entry(subscription.Topic+subscriptionsI+subscription.Name+rulesI+rule.Name, rule.Name, rule.CreatedAt, rule.CreatedAt, describeRule(rule))
}

// named undoes numeric references, which the client for JavaScript does not read, and which users
// of the client for Go see in errors. No attribute here has one of these characters but the
// quotation mark.
var named = strings.NewReplacer("&#39;", "'", "&#34;", "&quot;", "&#xA;", "\n", "&#x9;", "\t")

// marshal writes XML.
func marshal(v any) (string, error) {
	body, err := xml.Marshal(v)
	return named.Replace(string(body)), err
}

func write(w io.Writer, e entry) error {
	body, err := marshal(e)
	if err == nil {
		_, err = io.WriteString(w, body)
	}
	return err
}

// answer writes an entry.
func answer(w http.ResponseWriter, r *request, status int, e entry) error {
	body, err := marshal(e)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", entryType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, body)
	}
	return nil
}

// find returns the entity of the request. What the path says must be what it is.
func (h *Handler) find(r *request) (Entity, error) {
	return h.Entities.Find(r.Context(), r.grant.Caller.Tenant, r.path())
}

// findTopic returns the topic of the request.
func (h *Handler) findTopic(r *request) (Entity, error) {
	e, err := h.Entities.Find(r.Context(), r.grant.Caller.Tenant, r.name)
	if err == nil && e.Kind != Topic {
		err = forebay.Errorf(forebay.CodeNotFound, "there is no such topic")
	}
	return e, err
}

func (h *Handler) get(w http.ResponseWriter, r *request) error {
	switch r.resource {
	case theNamespace:
		since := timeText(h.Since)
		return answer(w, r, http.StatusOK, r.entry("$namespaceinfo", r.grant.Caller.Tenant, h.Since, h.Since, namespaceOutput{
			namespaces: described, CreatedTime: since, MessagingSKU: "Premium", MessagingUnits: 1, ModifiedTime: since, Name: r.grant.Caller.Tenant, NamespaceType: "Messaging",
		}))
	case queues:
		return h.list(w, r, "Queues", h.entities(r, Queue, ""))
	case topics:
		return h.list(w, r, "Topics", h.entities(r, Topic, ""))
	case subscriptions:
		topic, err := h.findTopic(r)
		if err != nil {
			return err
		}
		return h.list(w, r, "Subscriptions", h.entities(r, Subscription, topic.Name))
	case rules, aRule:
		return h.getRules(w, r)
	}
	e, err := h.find(r)
	if err != nil {
		return err
	}
	return answer(w, r, http.StatusOK, h.entityEntry(r, &e))
}

func (h *Handler) getRules(w http.ResponseWriter, r *request) error {
	e, err := h.find(r)
	if err != nil {
		return err
	}
	all, err := h.Entities.Rules(r.Context(), r.grant.Caller.Tenant, e.Named())
	if err != nil {
		return err
	}
	if r.resource == rules {
		return h.list(w, r, "Rules", func(skip, limit int) (page []entry, err error) {
			all := all[min(skip, len(all)):]
			for _, rule := range all[:min(limit, len(all))] {
				page = append(page, r.ruleEntry(e.Named(), rule))
			}
			return page, nil
		})
	}
	rule := ruleNamed(all, r.rule)
	if rule == nil {
		return forebay.Errorf(forebay.CodeNotFound, "there is no such rule")
	}
	return answer(w, r, http.StatusOK, r.ruleEntry(e.Named(), *rule))
}

// entities returns a function that reads a part of a list.
func (h *Handler) entities(r *request, kind Kind, topic string) func(skip, limit int) ([]entry, error) {
	return func(skip, limit int) ([]entry, error) {
		list, err := h.Entities.List(r.Context(), r.grant.Caller.Tenant, kind, topic, skip, limit)
		page := make([]entry, len(list))
		for i := range list {
			page[i] = h.entityEntry(r, &list[i])
		}
		return page, err
	}
}

// chunk is how many entities are in memory while a long page is written.
const chunk = 100

// list writes a page of a list. It ends with the link to the next one.
func (h *Handler) list(w http.ResponseWriter, r *request, name string, read func(skip, limit int) ([]entry, error)) error {
	skip, top, err := r.page()
	if err != nil {
		return err
	}
	rest := top
	entries, err := read(skip, min(rest, chunk)+1)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", feedType)
	if r.Method == http.MethodHead {
		return nil
	}
	self := r.scheme() + "://" + r.host + r.URL.EscapedPath()
	here := self
	if r.URL.RawQuery != "" {
		here += "?" + r.URL.RawQuery
	}
	begin := `<feed xmlns="` + atomNamespace + `"><title type="text">` + name + `</title><id>` + escaped(here) + `</id><updated>` + stamp(time.Now()) + `</updated>`
	if _, err := io.WriteString(w, begin); err != nil {
		return nil // the client has gone
	}
	at := skip
	for {
		size := min(rest, chunk)
		more := len(entries) > size
		for _, e := range entries[:min(size, len(entries))] {
			if err := write(w, e); err != nil {
				h.Logger.DebugContext(r.Context(), "a list of entities was not written", slog.Any("error", err))
				panic(http.ErrAbortHandler)
			}
		}
		at, rest = at+size, rest-size
		if !more || rest == 0 {
			if !more {
				at = 0
			}
			break
		}
		if entries, err = read(at, min(rest, chunk)+1); err != nil {
			h.Logger.ErrorContext(r.Context(), "a list of entities has broken off", slog.Any("error", err))
			panic(http.ErrAbortHandler) // the client must not take this for the end
		}
	}
	end := `<link rel="self" href="` + escaped(here) + `"/>`
	if at > 0 {
		query := r.URL.Query()
		query.Del("$skip")
		query.Del("$top")
		next := self + "?" + queryText(query) + "$skip=" + strconv.Itoa(at) + "&$top=" + strconv.Itoa(top)
		end += `<link rel="next" href="` + escaped(next) + `"/>`
	}
	_, _ = io.WriteString(w, end+`</feed>`)
	return nil
}

// queryText writes what a query has, with a separator behind it.
func queryText(query url.Values) string {
	if len(query) == 0 {
		return ""
	}
	return query.Encode() + "&"
}

// escaped is a text in XML.
func escaped(s string) string {
	var b escapedText
	_ = xml.EscapeText(&b, []byte(s))
	return named.Replace(string(b))
}

type escapedText []byte

func (b *escapedText) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }
