package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/modelsim"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

// documentEngines are the databases that documents are tested on.
var documentEngines = map[string]func(testing.TB) string{
	"sqlite":     func(t testing.TB) string { return "sqlite:" + servertest.DatabaseFile(t) },
	"postgresql": pgtest.Database,
	"pgvector":   pgtest.VectorDatabase,
}

// library is a server with documents, and what its model was asked.
type library struct {
	servertest.Remote
	t        *testing.T
	model    *modelsim.TestServer
	database string
	blobs    string // the folder
	// embed, if set, decides about calls that embed.
	embed atomic.Pointer[func(modelsim.Call) modelsim.Reply]
}

// described is a model's answer about a document.
const describedAs = `{"title":"Of its model","language":"en","entities":[{"type":"person","text":"Ada"},{"type":"person","text":"Ada"}]}`

func openLibrary(t *testing.T, o server.Options) *library {
	t.Helper()
	l := &library{t: t, database: o.Database, blobs: t.TempDir()}
	l.model = modelsim.StartTest(func(c modelsim.Call) modelsim.Reply {
		if f := l.embed.Load(); f != nil && c.Embed {
			return (*f)(c)
		}
		return modelsim.Reply{Text: describedAs}
	})
	t.Cleanup(l.model.Close)
	o.Listen, o.Blob = "127.0.0.1:0", "file://"+l.blobs
	o.Log = server.Log{Level: "error"}
	if o.Deployments == nil {
		o.Deployments = []server.Deployment{{Name: "simulated"}}
	}
	for i := range o.Deployments {
		d := &o.Deployments[i]
		d.Provider, d.Endpoint, d.Model = server.ProviderOpenAI, l.model.URL(), "test"
	}
	o.Queues = map[string]server.Queue{forebay.DefaultQueue: {Retry: server.Retry{First: 10 * time.Millisecond, Max: 20 * time.Millisecond, Attempts: 2}}}
	s := servertest.Start(t, o)
	l.Remote = servertest.Over(t, s)
	return l
}

// upload sends a document and returns the answer's status.
func (l *library) upload(query, contentType, content string, header ...string) (d forebay.Document, status int, err error) {
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.URL+"/v1/documents"+query, strings.NewReader(content))
	if err != nil {
		return d, 0, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if len(header) > 0 {
		req.Header.Set("Authorization", "Bearer "+header[0])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return d, 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode > 299 {
		p := &servertest.Problem{Status: resp.StatusCode}
		if err = json.Unmarshal(b, p); err == nil {
			err = p
		}
		return d, resp.StatusCode, err
	}
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	return d, resp.StatusCode, err
}

// add uploads a text and waits for the end of its pipeline.
func (l *library) add(id, content string) forebay.Document {
	l.t.Helper()
	if _, _, err := l.upload("?id="+id, "text/plain", content); err != nil {
		l.t.Fatal(err)
	}
	return l.await(id)
}

func (l *library) await(id string) (d forebay.Document) {
	l.t.Helper()
	if err := l.Get(l.t.Context(), "/v1/documents/"+id+"?wait=30s", &d); err != nil {
		l.t.Fatal(err)
	}
	return d
}

func (l *library) search(mode forebay.SearchMode, query string) []forebay.SearchResult {
	l.t.Helper()
	var found forebay.SearchResults
	if _, err := l.Do(l.t.Context(), http.MethodPost, "/v1/search", nil, forebay.SearchRequest{Query: query, Mode: mode}, &found); err != nil {
		l.t.Fatal(err)
	}
	return found.Items
}

// documentsOf names the documents that a search found.
func documentsOf(found []forebay.SearchResult) (ids []string) {
	for _, r := range found {
		if !slices.Contains(ids, r.DocumentID) {
			ids = append(ids, r.DocumentID)
		}
	}
	slices.Sort(ids)
	return ids
}

const documentEvents = "/v1/topics/" + forebay.TopicJobEvents + "/subscriptions/documents"

// subscribe has what is told of documents kept.
func (l *library) subscribe(t *testing.T) {
	t.Helper()
	for _, step := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPut, "/v1/topics/" + forebay.TopicJobEvents, struct{}{}},
		{http.MethodPut, documentEvents, struct{}{}},
		{http.MethodPut, documentEvents + "/rules/$Default", forebay.RuleSettings{SQLFilter: "sys.Label LIKE 'document.%'"}},
	} {
		if _, err := l.Do(t.Context(), step.method, step.path, nil, step.body, nil); err != nil {
			t.Fatalf("%s: %s", step.path, err)
		}
	}
}

// Whatever became of a content is told once.
func (l *library) told(t *testing.T) {
	var page forebay.Page[forebay.Message]
	if err := l.Get(t.Context(), documentEvents+"/messages?limit=100", &page); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, m := range page.Items {
		var e forebay.DocumentEvent
		if m.Body == nil || json.Unmarshal([]byte(*m.Body), &e) != nil || m.Subject != string(e.Type) || e.Revision == "" || e.ContentHash == "" || e.Timestamp.IsZero() {
			t.Errorf("%+v", m)
		}
		seen[string(e.Type)+" "+e.DocumentID+" "+e.ErrorCode]++
	}
	for what, want := range map[string]int{
		"document.ready heron ": 1, "document.ready changing ": 2, "document.failed empty document_empty": 1, "document.failed unlucky dimensions_changed": 1, "document.ready unlucky ": 1,
	} {
		if seen[what] != want {
			t.Errorf("%s was told %d times, want %d: %v", what, seen[what], want, seen)
		}
	}
}

func asProblem(err error, p **servertest.Problem) bool {
	known, ok := err.(*servertest.Problem)
	*p = known
	return ok
}

// key makes an API key of a tenant.
func (l *library) key(t *testing.T, tenant string, as map[string]string, scopes ...forebay.Scope) string {
	t.Helper()
	var key forebay.APIKey
	if _, err := l.Do(context.WithoutCancel(t.Context()), http.MethodPost, "/v1/keys", as, map[string]any{"tenant": tenant, "scopes": scopes}, &key); err != nil {
		t.Fatal(err)
	}
	return key.Key
}
