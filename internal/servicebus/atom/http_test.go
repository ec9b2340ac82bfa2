package atom_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// sent is an answer to a request.
type sent struct {
	status int
	body   string
	header http.Header
}

// send makes a request with a token for all of the tenant's entities.
func (n *namespace) send(t *testing.T, method, path, body string, change func(*http.Request)) sent {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, n.URL+path, strings.NewReader(body))
	mustDo(t, err)
	r.Header.Set("Authorization", n.token(t))
	if change != nil {
		change(r)
	}
	answer, err := n.Client().Do(r)
	mustDo(t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	mustDo(t, err)
	return sent{answer.StatusCode, string(data), answer.Header}
}

// token signs for the namespace.
func (n *namespace) token(t *testing.T) string {
	t.Helper()
	if n.signed == "" {
		key, err := n.keys.Create(t.Context(), "acme", []forebay.Scope{forebay.ScopeManage}, nil, forebay.Budget{}, "test")
		mustDo(t, err)
		resource, expiry := url.QueryEscape(n.URL), fmt.Sprint(time.Now().Add(time.Hour).Unix())
		mac := hmac.New(sha256.New, []byte(key.Key))
		mac.Write([]byte(resource + "\n" + expiry))
		n.signed = "SharedAccessSignature sr=" + resource + "&sig=" + url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil))) + "&se=" + expiry + "&skn=" + key.ID
	}
	return n.signed
}

const aQueue = `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>`

func TestHostileRequestsAreRefused(t *testing.T) {
	n := newNamespace(t)
	update := func(r *http.Request) { r.Header.Set("If-Match", "*") }
	for name, c := range map[string]struct {
		method, path, body string
		change             func(*http.Request)
		status             int
		says               string
	}{
		"no token":              {"GET", "/q", "", func(r *http.Request) { r.Header.Del("Authorization") }, 401, "MissingToken"},
		"a scheme":              {"GET", "/q", "", func(r *http.Request) { r.Header.Set("Authorization", "Basic eDp5") }, 401, "401 SubCode=40100"},
		"a web page":            {"GET", "/q", "", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 401, "web pages"},
		"another method":        {"POST", "/q", aQueue, nil, 405, "SubCode=40500"},
		"a list put":            {"PUT", "/$Resources/Queues", aQueue, nil, 405, "SubCode=40500"},
		"the namespace deleted": {"DELETE", "/$namespaceinfo", "", nil, 405, "SubCode=40500"},
		"a large body":          {"PUT", "/q", strings.Replace(aQueue, "<content", strings.Repeat(" ", 300_000)+"<content", 1), nil, 413, "SubCode=41300"},
		"a large body in parts": {"PUT", "/q", strings.Replace(aQueue, "<content", strings.Repeat(" ", 300_000)+"<content", 1), func(r *http.Request) { r.ContentLength = -1 }, 413, "SubCode=41300"},
		"a document type":       {"PUT", "/q", `<!DOCTYPE e [<!ENTITY x SYSTEM "file:///etc/passwd">]>` + aQueue, nil, 400, "document type"},
		"no body":               {"PUT", "/q", "", nil, 400, "SubCode=40000"},
		"another description":   {"PUT", "/t/Subscriptions/s", aQueue, nil, 400, "SubCode=40000"},
		"a rule as a queue":     {"PUT", "/t/Subscriptions/s/Rules/r", aQueue, nil, 400, "SubCode=40000"},
		"an update of nothing":  {"PUT", "/q", aQueue, update, 404, "SubCode=40400"},
		"a name":                {"PUT", "/a%2F..%2Fb", aQueue, nil, 400, "SubCode=40000"},
		"a subqueue":            {"PUT", "/q/$deadletterqueue", aQueue, nil, 400, "SubCode=40000"},
		"no name":               {"PUT", "/", aQueue, nil, 400, "SubCode=40000"},
		"a page":                {"GET", "/$Resources/Queues?$top=0", "", nil, 400, "$top goes from 1"},
		"another page":          {"GET", "/$Resources/Queues?$skip=-1", "", nil, 400, "$skip goes from 0"},
		"a page of words":       {"GET", "/$Resources/Topics?$top=all", "", nil, 400, "$top goes from 1"},
		"a topic of others":     {"PUT", "/job-events", strings.ReplaceAll(aQueue, "Queue", "Topic"), update, 404, "SubCode=40400"},
	} {
		got := n.send(t, c.method, c.path, c.body, c.change)
		if got.status != c.status || !strings.Contains(got.body, c.says) || !strings.HasPrefix(got.body, fmt.Sprintf("<Error><Code>%d</Code><Detail>", c.status)) || !strings.Contains(got.body, "TrackingId:") {
			t.Errorf("%s: %d %s; expected %d with %q", name, got.status, got.body, c.status, c.says)
		}
	}
	queues, err := n.messages.Queues.List(t.Context(), "acme")
	if err != nil || len(queues) != 0 {
		t.Errorf("there are %+v, %v", queues, err)
	}
}

// The SDK for .NET takes a time without a zone for local. It cannot read that of an entity that
// nobody has used, 0001-01-01, where local time is ahead of UTC.
func TestTimesHaveTheirZone(t *testing.T) {
	n := newNamespace(t)
	n.send(t, "PUT", "/q", aQueue, nil)
	for _, path := range []string{"/q", "/$Resources/Queues"} {
		if got := n.send(t, "GET", path, "", nil); !strings.Contains(got.body, "<AccessedAt>0001-01-01T00:00:00Z</AccessedAt>") {
			t.Errorf("%s: %s", path, got.body)
		}
	}
}

func TestHealthAsTheEmulatorHasIt(t *testing.T) {
	n := newNamespace(t)
	got := n.send(t, "GET", "/health", "", func(r *http.Request) { r.Header.Del("Authorization") })
	if got.status != http.StatusOK || !strings.Contains(got.body, `"status":"healthy"`) {
		t.Errorf("%+v", got)
	}
}

func TestAddressesNameTheHostThatWasCalled(t *testing.T) {
	n := newNamespace(t)
	if got := n.send(t, "PUT", "/q?api-version=2017-04", aQueue, nil); got.status != http.StatusCreated {
		t.Fatalf("%+v", got)
	}
	got := n.send(t, "GET", "/$Resources/queues?api-version=2024-05&enrich=false&$top=1", "", func(r *http.Request) { r.Host = "bus.example:9999" })
	for _, want := range []string{"<id>https://bus.example:9999/q?api-version=2024-05</id>", `<title type="text">q</title>`} {
		if !strings.Contains(got.body, want) || strings.Contains(got.body, `rel="next"`) {
			t.Errorf("%s is missing in %s", want, got.body)
		}
	}
	if head := n.send(t, "HEAD", "/q", "", nil); head.status != http.StatusOK || head.body != "" || head.header.Get("Content-Type") == "" {
		t.Errorf("HEAD: %+v", head)
	}
	n.send(t, "PUT", "/r", aQueue, nil)
	got = n.send(t, "GET", "/$Resources/Queues?api-version=2021-05&$top=1", "", func(r *http.Request) { r.Host = `x"><script>` })
	if !strings.Contains(got.body, "https://localhost/$Resources/Queues?api-version=2021-05&amp;$skip=1&amp;$top=1") || strings.Contains(got.body, "<script") {
		t.Errorf("the next page: %s", got.body)
	}
}

func TestOneOfManyCreatesWins(t *testing.T) {
	n := newNamespace(t)
	token := n.token(t)
	statuses := map[int]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			path := "/Contended"
			if i%2 == 0 {
				path = "/contended"
			}
			r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), "PUT", n.URL+path, strings.NewReader(aQueue))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", token)
			answer, err := n.Client().Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			_ = answer.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			statuses[answer.StatusCode]++
		})
	}
	wg.Wait()
	if statuses[http.StatusCreated] != 1 || statuses[http.StatusConflict] != 11 {
		t.Errorf("the answers are %v", statuses)
	}
}
