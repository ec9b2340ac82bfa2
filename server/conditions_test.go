package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/pgtest"
	"github.com/forebayhq/forebay/internal/servertest"
	"github.com/forebayhq/forebay/server"
)

func deref(v *int64) int64 {
	if v == nil {
		return 0
	}
	return *v
}

func tokensOf(b *forebay.Budget) string {
	if b == nil {
		return "none"
	}
	return fmt.Sprint(deref(b.MonthlyTokens))
}

func limitOf(t forebay.Tenant) string {
	for _, l := range t.Limits {
		if l.Name == forebay.LimitWaitingJobs && l.Set {
			return fmt.Sprint(l.Limit)
		}
	}
	return "default"
}

func on(ctx context.Context, etag string) context.Context {
	return forebay.WithCondition(ctx, forebay.IfMatch(etag))
}

// conditionServers starts processes on a database, and returns administrators' clients and the
// id of a key.
func conditionServers(t *testing.T, database string, processes int) (clients []*client.Client, key string) {
	t.Helper()
	o := server.Options{Database: database, Blob: "file://" + t.TempDir(), Webhooks: server.Webhooks{AllowHTTP: true, AllowAddresses: []string{"127.0.0.0/8"}},
		Functions: []forebay.Task{{Name: "fails", Run: func(context.Context, forebay.TaskCall) (forebay.TaskResult, error) {
			return forebay.TaskResult{}, forebay.Permanent("broken", "it never works")
		}}}}
	var admin forebay.APIKey
	for i := range processes {
		s := servertest.Start(t, o)
		url := "http://" + s.Addr(t.Context()).String()
		if i == 0 {
			local, err := client.New(client.Options{BaseURL: url})
			if err == nil {
				admin, err = local.CreateKey(t.Context(), forebay.DefaultTenant, []forebay.Scope{forebay.ScopeAdmin}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		c, err := client.New(client.Options{BaseURL: url, Key: forebay.Secret(admin.Key)})
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	c, ctx := clients[0], t.Context()
	_, err := c.PutMessageQueue(ctx, "notes", forebay.MessageQueueSettings{})
	_, err2 := c.PutTopic(ctx, "news", forebay.TopicSettings{})
	_, err3 := c.PutSubscription(ctx, "news", "all", forebay.SubscriptionSettings{})
	for _, name := range []string{"hook", "rotated"} {
		_, failed := c.CreateWebhook(ctx, forebay.NewWebhook{Name: name, WebhookSettings: forebay.WebhookSettings{URL: "http://127.0.0.1:9/"}})
		err = errors.Join(err, failed)
	}
	other, err4 := c.CreateKey(ctx, forebay.DefaultTenant, []forebay.Scope{forebay.ScopeRead}, nil)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	return clients, other.ID
}

// rivals is how many make a change at once.
const rivals = 8

// race runs act for each rival, and returns those without an error. All others must have one of
// the codes.
func race(t *testing.T, clients []*client.Client, act func(c *client.Client, n int) error, codes ...forebay.Code) (won []int) {
	t.Helper()
	failed := make([]error, rivals)
	var all sync.WaitGroup
	for n := range rivals {
		all.Go(func() { failed[n] = act(clients[n%len(clients)], n) })
	}
	all.Wait()
	for n, err := range failed {
		if err == nil {
			won = append(won, n)
		} else if !slices.Contains(codes, forebay.CodeOf(err)) {
			t.Errorf("rival %d: %v", n, err)
		}
	}
	return won
}

// Nobody overwrites a state that he has not seen, however many act at once: the transaction that
// writes compares.
func TestConditions(t *testing.T) {
	servertest.OnDatabases(t, func(t *testing.T, database string) { testConditions(t, database, 1) })
}

// The same holds where the writers are in several processes, which remember what they have read.
func TestConditionsOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	testConditions(t, pgtest.Database(t), 2)
}

func testConditions(t *testing.T, database string, processes int) {
	clients, key := conditionServers(t, database, processes)
	for _, thing := range conditionedThings(key) {
		t.Run(thing.name, func(t *testing.T) { thing.test(t, clients) })
	}
	t.Run("documents", func(t *testing.T) { testDocumentConditions(t, clients) })
	t.Run("dead letters", func(t *testing.T) { testDeadLetterConditions(t, clients) })
}

func (th conditioned) test(t *testing.T, clients []*client.Client) {
	ctx, first, last := t.Context(), clients[0], clients[len(clients)-1]
	if th.isNew {
		if won := race(t, clients, func(c *client.Client, n int) error {
			_, err := th.change(forebay.WithCondition(ctx, forebay.IfNew()), c, n)
			return err
		}, forebay.CodePreconditionFailed); len(won) != 1 {
			t.Errorf("%v have made it", won)
		}
	}
	see := func(c *client.Client) (etag, state string) {
		t.Helper()
		etag, state, err := th.show(ctx, c)
		if err != nil || len(etag) < 10 {
			t.Fatalf("%q %q: %v", etag, state, err)
		}
		return etag, state
	}
	shown, _ := see(first)
	if th.path != "" {
		if header := etagOf(t, first, th.path); header != shown {
			t.Errorf("the header says %s, the body %s", header, shown)
		}
	}
	made, err := th.change(on(ctx, shown), first, 20)
	if err != nil {
		t.Fatal(err)
	}
	if _, state := see(last); state != made {
		t.Errorf("it is %s after a change to %s", state, made)
	}
	// Another process may still remember what it has read before.
	if _, err := th.change(on(ctx, shown), last, 21); forebay.CodeOf(err) != forebay.CodePreconditionFailed {
		t.Errorf("who has seen an older state: %v", err)
	}
	if th.isNew {
		if _, err := th.change(forebay.WithCondition(ctx, forebay.IfNew()), last, 22); forebay.CodeOf(err) != forebay.CodePreconditionFailed {
			t.Errorf("it is made a second time: %v", err)
		}
	}
	if th.remove != nil {
		if err := th.remove(on(ctx, shown), last); forebay.CodeOf(err) != forebay.CodePreconditionFailed {
			t.Errorf("who has seen an older state deletes it: %v", err)
		}
	}
	present, state := see(last)
	if present == shown || state != made {
		t.Errorf("tag %s, then %s; state %s", shown, present, state)
	}

	states := make([]string, rivals)
	won := race(t, clients, func(c *client.Client, n int) (err error) {
		states[n], err = th.change(on(ctx, present), c, n)
		return err
	}, forebay.CodePreconditionFailed)
	if _, state := see(first); len(won) != 1 || state != states[won[0]] {
		t.Fatalf("%v have won, it is %s of %v", won, state, states)
	}
	if _, err := th.change(on(ctx, forebay.AnyETag), last, 23); err != nil {
		t.Errorf("any state: %v", err)
	}
	if _, err := th.change(ctx, first, 24); err != nil {
		t.Errorf("without a condition: %v", err)
	}
	if th.remove == nil {
		return
	}
	present, _ = see(last)
	if won := race(t, clients, func(c *client.Client, _ int) error { return th.remove(on(ctx, present), c) },
		forebay.CodeNotFound, forebay.CodeUnknownQueue); len(won) != 1 {
		t.Errorf("%v have deleted it", won)
	}
	if _, err := th.change(on(ctx, present), first, 25); !slices.Contains([]forebay.Code{forebay.CodePreconditionFailed, forebay.CodeNotFound}, forebay.CodeOf(err)) {
		t.Errorf("what was deleted is changed: %v", err)
	}
	if th.isNew { // another one of that name is not the one that was shown
		if _, err := th.change(ctx, first, 24); err != nil {
			t.Fatal(err)
		}
		if err := th.remove(on(ctx, present), first); forebay.CodeOf(err) != forebay.CodePreconditionFailed {
			t.Errorf("what was made anew is deleted: %v", err)
		}
	}
}

// etagOf is the header ETag of an answer.
func etagOf(t *testing.T, c *client.Client, path string) string {
	t.Helper()
	var etag string
	tagged, err := client.New(client.Options{BaseURL: c.BaseURL(), HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			etag = resp.Header.Get("ETag")
		}
		return resp, err
	})}, Key: conditionKey(t, c)})
	if err == nil {
		err = tagged.Call(t.Context(), http.MethodGet, path, nil, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return etag
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// conditionKey makes a key for an administrator.
func conditionKey(t *testing.T, c *client.Client) forebay.Secret {
	t.Helper()
	key, err := c.CreateKey(t.Context(), forebay.DefaultTenant, []forebay.Scope{forebay.ScopeAdmin}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return forebay.Secret(key.Key)
}

// A document is deleted with the content that was seen, or not at all.
func testDocumentConditions(t *testing.T, clients []*client.Client) {
	ctx, first, last := t.Context(), clients[0], clients[len(clients)-1]
	add := func(c *client.Client, content string) forebay.Document {
		t.Helper()
		d, _, err := c.AddDocument(ctx, forebay.NewDocument{ID: "harbour"}, []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	shown := add(first, "The first content.")
	if seen, err := last.Document(ctx, "harbour"); err != nil || seen.ETag != shown.ETag || etagOf(t, last, "/v1/documents/harbour") != shown.ETag {
		t.Errorf("tag %s, then %s (%v)", shown.ETag, seen.ETag, err)
	}
	present := add(last, "Another content, uploaded by somebody else.")
	if err := first.DeleteDocument(on(ctx, shown.ETag), "harbour"); forebay.CodeOf(err) != forebay.CodePreconditionFailed {
		t.Errorf("who has seen older content deletes it: %v", err)
	}
	if won := race(t, clients, func(c *client.Client, _ int) error { return c.DeleteDocument(on(ctx, present.ETag), "harbour") }, forebay.CodeNotFound); len(won) != 1 {
		t.Errorf("%v have deleted it", won)
	}
	anew := add(first, "Another content, uploaded by somebody else.")
	if err := first.DeleteDocument(on(ctx, present.ETag), "harbour"); forebay.CodeOf(err) != forebay.CodePreconditionFailed || anew.ETag == present.ETag {
		t.Errorf("what was uploaded anew is deleted: %v", err)
	}
}

// A dead letter is redriven, and edited, in the generation that was seen, or not at all.
func testDeadLetterConditions(t *testing.T, clients []*client.Client) {
	ctx, first, last := t.Context(), clients[0], clients[len(clients)-1]
	job, _, err := first.Submit(ctx, forebay.SubmitRequest{Task: "fails", Input: json.RawMessage(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	fails := func(generation int) forebay.SetAsideJob {
		t.Helper()
		waiting, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if over, err := first.Wait(waiting, job.ID); err != nil || over.Generation != generation {
			t.Fatalf("%+v %v", over, err)
		}
		dead, err := last.DeadLetters(forebay.DefaultQueue).Peek(ctx, job.ID)
		if err != nil || dead.Generation != generation {
			t.Fatalf("%+v %v", dead, err)
		}
		return dead
	}
	redrive := func(ctx context.Context, c *client.Client, input string, dry bool) error {
		_, err := c.DeadLetters(forebay.DefaultQueue).Redrive(ctx, forebay.RedriveRequest{Filter: forebay.SetAsideFilter{JobIDs: []string{job.ID}}, DryRun: dry,
			Edit: &forebay.RedriveEdit{Input: json.RawMessage(input)}})
		return err
	}
	shown := fails(1)
	if header := etagOf(t, first, "/v1/queues/default/dead-letters/"+job.ID); header != shown.ETag {
		t.Errorf("the header says %s, the body %s", header, shown.ETag)
	}
	if err := redrive(on(ctx, shown.ETag), first, `{"n":1}`, true); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	if won := race(t, clients, func(c *client.Client, n int) error {
		return redrive(on(ctx, shown.ETag), c, fmt.Sprintf(`{"n":%d}`, 10+n), false)
	},
		forebay.CodePreconditionFailed); len(won) != 1 {
		t.Errorf("%v have redriven it", won)
	} else if second := fails(2); string(second.Input) != fmt.Sprintf(`{"n":%d}`, 10+won[0]) || second.ETag == shown.ETag {
		t.Errorf("rival %d has redriven it, with %s", won[0], second.Input)
	}
	for _, dry := range []bool{true, false} {
		if err := redrive(on(ctx, shown.ETag), last, `{"n":99}`, dry); forebay.CodeOf(err) != forebay.CodePreconditionFailed {
			t.Errorf("who has seen an older generation: %v", err)
		}
	}
	_, err = first.DeadLetters(forebay.DefaultQueue).Redrive(on(ctx, shown.ETag), forebay.RedriveRequest{All: true})
	if forebay.CodeOf(err) != forebay.CodeInvalidRequest {
		t.Errorf("a condition about no particular job: %v", err)
	}
	if input := fails(2).Input; string(input) == `{"n":99}` {
		t.Error("the change of another was overwritten")
	}
}

// Faults of a simulated deployment are in memory. A request that takes no condition says so, and
// what is no condition is refused.
func TestConditionsInMemoryAndElsewhere(t *testing.T) {
	t.Parallel()
	clients, _ := conditionServers(t, "", 1)
	ctx, c := t.Context(), clients[0]
	deployments, err := c.Deployments(ctx)
	if err != nil {
		t.Fatal(err)
	}
	name := deployments[0].Name
	faults, etag, err := c.TaggedSimFaults(ctx, name)
	if err != nil || etag == "" || !json.Valid(faults) {
		t.Fatalf("%s %s %v", faults, etag, err)
	}
	if won := race(t, clients, func(c *client.Client, n int) error {
		return c.SetSimFaults(on(ctx, etag), name, json.RawMessage(fmt.Sprintf(`{"throttle_rate":0.%d}`, n+1)))
	}, forebay.CodePreconditionFailed); len(won) != 1 {
		t.Errorf("%v have won", won)
	}

	for condition, field := range map[string]forebay.Condition{"If-Match": forebay.IfMatch(etag), "If-None-Match": forebay.IfNew()} {
		err := c.Call(forebay.WithCondition(ctx, field), http.MethodPost, "/v1/queues/default/pause", nil, nil, nil)
		if e, ok := errors.AsType[*forebay.Error](err); !ok || e.Code != forebay.CodeNotSupported || e.Field != condition {
			t.Errorf("%s of a pause: %v", condition, err)
		}
	}
	if q, err := c.Queue(ctx, forebay.DefaultQueue); err != nil || q.Paused {
		t.Errorf("the queue is paused: %v", err)
	}
	if _, err := c.Tenant(on(ctx, `"other"`), forebay.DefaultTenant); err != nil {
		t.Errorf("a read has no condition: %v", err)
	}
	if _, err := c.SetConcurrency(on(ctx, forebay.AnyETag), "unheard-of", 3); forebay.CodeOf(err) != forebay.CodePreconditionFailed {
		t.Errorf("a tenant that is not there: %v", err)
	}
	if _, err := c.Tenant(ctx, "unheard-of"); forebay.CodeOf(err) != forebay.CodeNotFound {
		t.Errorf("the refused request has made the tenant: %v", err)
	}
	for _, wrong := range []string{"", "plain", `"a" "b"`, `"open`} {
		if _, err := c.SetConcurrency(on(ctx, wrong), forebay.DefaultTenant, 3); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("If-Match %q: %v", wrong, err)
		}
	}
}
