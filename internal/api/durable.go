package api

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api/decode"
)

// Requests of Durable Functions clients are read tolerantly. The words of a path and the names of
// parameters may have any letter case. A slash may end the path. Unknown parameters are ignored.

// durableNames are the words and parameters of the routes below durablePath. The keys are in lower
// case.
type durableNames struct {
	words, parameters map[string]string
}

// durableNamesOf collects them from the description of the routes.
func durableNamesOf(described *huma.OpenAPI) durableNames {
	n := durableNames{map[string]string{}, map[string]string{}}
	for path, item := range described.Paths {
		if !isDurable(path) {
			continue
		}
		for _, word := range strings.Split(path[len(durablePath):], "/") {
			if !strings.HasPrefix(word, "{") {
				n.words[strings.ToLower(word)] = word
			}
		}
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Delete} {
			if op == nil {
				continue
			}
			for _, p := range op.Parameters {
				if p.In == "query" {
					n.parameters[strings.ToLower(p.Name)] = p.Name
				}
			}
		}
	}
	return n
}

// isDurable reports whether a path is durablePath or below it.
func isDurable(path string) bool {
	return len(path) >= len(durablePath) && strings.EqualFold(path[:len(durablePath)], durablePath) && (len(path) == len(durablePath) || path[len(durablePath)] == '/')
}

// keyParameter is the query parameter for a key, as in Azure Functions.
const keyParameter = "code"

// readDurable rewrites a request below durablePath to the spelling of the routes. It takes the key
// out of the query.
func (a *API) readDurable(c *call) {
	path := c.r.URL.EscapedPath()
	if !isDurable(path) {
		return
	}
	segments := strings.Split(strings.TrimSuffix(path[len(durablePath):], "/"), "/")
	a.durable.spell(segments, 1)
	if len(segments) > 1 && segments[1] == "instances" { // below orchestrators it is an id
		a.durable.spell(segments, 3)
	}
	u := *c.r.URL
	u.RawPath = durablePath + strings.Join(segments, "/")
	if plain, err := url.PathUnescape(u.RawPath); err == nil {
		u.Path = plain
	}
	sent, query := u.Query(), url.Values{}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		lower := strings.ToLower(name)
		if lower == keyParameter {
			c.codes = append(c.codes, sent[name]...)
		} else if known, ok := a.durable.parameters[lower]; ok {
			query[known] = append(query[known], sent[name]...)
		}
	}
	u.RawQuery = query.Encode()
	c.r = c.r.WithContext(c.r.Context()) // a copy
	c.r.URL, c.r.RequestURI = &u, ""
}

// spell replaces a segment by its spelling in the routes, if it is one of their words.
func (n durableNames) spell(segments []string, i int) {
	if i < len(segments) {
		if word, ok := n.words[strings.ToLower(segments[i])]; ok {
			segments[i] = word
		}
	}
}

// functionsKeyHeader is the header for a key, as in Azure Functions.
const functionsKeyHeader = "X-Functions-Key"

// functionsKey returns the key that a client of Durable Functions sent, or "". It may be in a
// header or, if allowed, in the query.
func (a *API) functionsKey(c *call) (string, error) {
	keys := c.r.Header.Values(functionsKeyHeader)
	if len(keys) == 0 && a.codeInQuery {
		keys = c.codes
	}
	if len(keys) == 0 {
		return "", nil
	}
	if len(keys) > 1 || !forebay.ValidText(keys[0], maxKeyBytes) {
		return "", forebay.Errorf(forebay.CodeUnauthorized, "the header %s must be one API key", strings.ToLower(functionsKeyHeader))
	}
	return keys[0], nil
}

// durableTimes are the time formats that clients of Durable Functions send. A time without a zone
// is UTC.
var durableTimes = []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly}

func parseTime(field, s string) (t time.Time, err error) {
	if s == "" {
		return t, nil
	}
	for _, form := range durableTimes {
		if t, err = time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, forebay.Invalid(field, "must be %s; seconds and zone may be left out", decode.WantTime)
}

// documentKeys describes how a route below durablePath takes a key.
func (a *API) documentKeys(op *huma.Operation) {
	op.Security = append(op.Security, map[string][]string{"functionsKey": {}})
	schemes := a.huma.OpenAPI().Components.SecuritySchemes
	schemes["functionsKey"] = &huma.SecurityScheme{Type: "apiKey", In: "header", Name: strings.ToLower(functionsKeyHeader), Description: "An API key, as Azure Functions takes it"}
	if a.codeInQuery {
		op.Security = append(op.Security, map[string][]string{"code": {}})
		schemes["code"] = &huma.SecurityScheme{Type: "apiKey", In: "query", Name: keyParameter, Description: "An API key, as Azure Functions takes it"}
	}
}
