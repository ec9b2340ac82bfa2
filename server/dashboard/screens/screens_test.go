package screens_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
	"github.com/forebayhq/forebay/internal/browsertest"
	"github.com/forebayhq/forebay/internal/dashboard"
	"github.com/forebayhq/forebay/internal/dashboardtest"
	"github.com/forebayhq/forebay/server"
)

// screen is a page as it is tried: its address below the dashboard, and a text that it shows once
// the data of the test is there.
type screen struct{ path, shows string }

// noScreens are addresses that are no page of somebody who has signed in: downloads, what leads
// elsewhere, and the sign-in, which TestSignIn of signin tries.
var noScreens = []string{
	"", "/sign-in", "/assets/{hash}/{name}", "/sign-in/begin", "/sign-in/callback", "/live", "/find",
	"/jobs/{id}/input", "/jobs/{id}/result", "/orchestrations/{id}/history", "/batches/{id}/files/{which}", "/responses/{id}/content",
}

// furnished configures a server whose pages can all have data.
func furnished(t *testing.T) func(*server.Options) {
	t.Helper()
	up, instances := dashboardtest.Provider(t, nil), dashboardtest.Flows(t, make(chan struct{}))
	return func(o *server.Options) {
		up(o)
		instances(o)
		dashboardtest.Parses(o)
		o.Deployments = append(o.Deployments, server.Deployment{Name: "west", Provider: server.ProviderSim})
		o.Models = map[string]server.Model{"chat": server.InOrder("up"), "embedding": server.InOrder("west"), "simulated": server.InOrder("west")}
		o.Tasks = map[string]server.TaskOption{}
		for _, task := range []string{"classify", "extract", "summarize"} { // of documents
			o.Tasks[task] = server.TaskOption{Model: "simulated"}
		}
		o.Queues = map[string]server.Queue{"strict": {OnFailure: server.OnFailureQuarantine}, "held": {}}
		o.Webhooks = server.Webhooks{AllowHTTP: true, AllowAddresses: []string{"127.0.0.0/8"}}
	}
}

// jobIn submits a job to a queue. It waits until the job has ended, if that is wanted.
func jobIn(t *testing.T, c *client.Client, queue, task, input string, ends bool) string {
	t.Helper()
	job, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: task, Queue: queue, Input: json.RawMessage(input)})
	if err != nil {
		t.Fatal(err)
	}
	if ends {
		dashboardtest.Must[forebay.Job](t)(c.Wait(t.Context(), job.ID))
	}
	return job.ID
}

// furnishJobs gives pages about jobs something to show.
func furnishJobs(t *testing.T, s *dashboardtest.Running, key string, screens map[string]screen) {
	t.Helper()
	c := s.Client(t, key)
	good := s.Job(t, key, "parse", `{"good":true,"number":12345678901234567890}`, forebay.StatusSucceeded).ID
	bad := s.Job(t, key, "parse", `{"good":false,"number":12345678901234567890}`, forebay.StatusFailed).ID
	large := s.Job(t, key, "parse", `{"good":true,"large":3000000}`, forebay.StatusSucceeded).ID
	other := s.Job(t, s.KeyOf(t, "other", forebay.ScopeAdmin), "parse", `{"good":true}`, forebay.StatusSucceeded).ID
	s.Job(t, key, "chat", `"How warm is it?"`, forebay.StatusSucceeded)
	quarantined := jobIn(t, c, "strict", "parse", `{"good":false}`, true)
	if err := c.PauseQueue(t.Context(), "held"); err != nil {
		t.Fatal(err)
	}
	jobIn(t, c, "held", "parse", `{"good":true}`, false)
	session := "order-8"
	if _, _, err := c.Submit(t.Context(), forebay.SubmitRequest{Task: "parse", Queue: "held", Input: json.RawMessage(`{"good":true}`), SessionID: &session}); err != nil {
		t.Fatal(err)
	}
	running := jobIn(t, c, "default", "chat", `"wait"`, false)
	maps.Copy(screens, map[string]screen{
		"/{$}":                           {"/", "Needs you"},
		"/backlog":                       {"/backlog", "held"},
		"/calls":                         {"/calls", running},
		"/processes":                     {"/processes", "strict"},
		"/jobs":                          {"/jobs", good},
		"/jobs?status":                   {"/jobs?status=succeeded", good},
		"/jobs/{id}":                     {"/jobs/" + good + "?show=input", "12345678901234567890"},
		"/jobs/{id} large":               {"/jobs/" + large, "This is the beginning"},
		"/jobs/{id} running":             {"/jobs/" + running, "running"},
		"/jobs/{id} of another tenant":   {"/jobs/" + other + "?tenant=other", "succeeded"},
		"/dead-letters":                  {"/dead-letters", bad},
		"/dead-letters/{queue}/{job}":    {"/dead-letters/default/" + bad, "unreadable"},
		"/dead-letters/{queue}/redrive":  {"/dead-letters/default/redrive", "would go: all that are in the queue now"},
		"/quarantine":                    {"/quarantine", quarantined},
		"/quarantine/{queue}/{job}":      {"/quarantine/strict/" + quarantined, "unreadable"},
		"/quarantine/{queue}/redrive":    {"/quarantine/strict/redrive", "would go: all that are in the queue now"},
		"/sessions/jobs":                 {"/sessions/jobs", session},
		"/retries":                       {"/retries", "unreadable"},
		"/usage":                         {"/usage", "acme"},
		"/deployments":                   {"/deployments", "west"},
		"/deployments/{name}":            {"/deployments/up", "Pace"},
		"/deployments/{name} of the sim": {"/deployments/west", "Faults of the simulation"},
		"/tenants":                       {"/tenants", "acme"},
		"/tenants/{name}":                {"/tenants/acme", "This month"},
		"/tenants/{name}/limits":         {"/tenants/acme/limits", "waiting_jobs"},
		"/keys":                          {"/keys", "other"},
		"/keys/{id}":                     {"/keys/" + dashboardtest.KeyID(t, c, "acme"), "admin"},
		"/sign-ins":                      {"/sign-ins", "you"},
		"/audit":                         {"/audit", "acme"},
		"/audit/verify":                  {"/audit/verify", "entries"},
	})
}

// furnishFlows does so for orchestrations, workflows, batches and responses.
func furnishFlows(t *testing.T, s *dashboardtest.Running, key string, screens map[string]screen) {
	t.Helper()
	c := s.Client(t, key)
	dashboardtest.StartInstance(t, s, key, "fails", "bad-1", `"x"`)
	dashboardtest.StartInstance(t, s, key, "waits", "long", `"x"`)
	dashboardtest.StartInstance(t, s, key, "diamond", "steps", `"hello"`)
	batch, open := dashboardtest.BatchOf(t, s, c, dashboardtest.LinesOf("hi", "refuse", "ho")).ID, dashboardtest.BatchOf(t, s, c, dashboardtest.LinesOf("wait")).ID
	response, refused := dashboardtest.Ask(t, s, c, "hi", true), dashboardtest.Ask(t, s, c, "refuse", true)
	dashboardtest.WaitBatch(t, c, batch)
	dashboardtest.ResponseIs(t, c, response, "completed")
	dashboardtest.ResponseIs(t, c, refused, "failed")
	dashboardtest.InstanceIs(t, s, key, "bad-1", forebay.OrchestrationFailed)
	dashboardtest.InstanceIs(t, s, key, "steps", forebay.OrchestrationCompleted)
	maps.Copy(screens, map[string]screen{
		"/orchestrations":              {"/orchestrations", "bad-1"},
		"/orchestrations/{id}":         {"/orchestrations/bad-1", "sub-orchestration"},
		"/orchestrations/{id} waiting": {"/orchestrations/long", "Running"},
		"/workflows":                   {"/workflows", "diamond"},
		"/workflows/{name}":            {"/workflows/diamond?instance=steps", "This is the state of the instance"},
		"/batches":                     {"/batches", batch},
		"/batches/{id}":                {"/batches/" + batch, "66.7 %"},
		"/batches/{id} open":           {"/batches/" + open, "Cancel the batch"},
		"/responses":                   {"/responses", response},
		"/responses/{id}":              {"/responses/" + response, "weather"},
		"/responses/{id} failed":       {"/responses/" + refused, "failed"},
	})
}

// furnishMessages does so for messages, webhooks and documents.
func furnishMessages(t *testing.T, s *dashboardtest.Running, key string, screens map[string]screen) {
	t.Helper()
	c := s.Client(t, key)
	dashboardtest.Must[forebay.MessageQueue](t)(c.PutMessageQueue(t.Context(), "mail", forebay.MessageQueueSettings{}))
	dashboardtest.Must[forebay.MessageQueue](t)(c.PutMessageQueue(t.Context(), "steps", forebay.MessageQueueSettings{RequiresSession: new(true)}))
	dashboardtest.Must[forebay.Topic](t)(c.PutTopic(t.Context(), "orders", forebay.TopicSettings{}))
	dashboardtest.Must[forebay.Subscription](t)(c.PutSubscription(t.Context(), "orders", "large", forebay.SubscriptionSettings{
		Rules: []forebay.NewRule{{Name: "big", RuleSettings: forebay.RuleSettings{SQLFilter: "quantity > 10", SQLAction: "SET size = 'large'"}}}}))
	letter := dashboardtest.Letters(t, c, c.Messages("mail").Send, "mail")
	dead := strconv.FormatInt(dashboardtest.Peek(t, c, "mail/$deadletterqueue")[0].SequenceNumber, 10)
	copied := dashboardtest.Letters(t, c, func(ctx context.Context, m ...forebay.NewMessage) ([]forebay.SentMessage, error) {
		return c.Publish(ctx, "orders", m...)
	}, "orders/subscriptions/large")
	dashboardtest.Must[[]forebay.SentMessage](t)(c.Messages("steps").Send(t.Context(), forebay.NewMessage{SessionID: "order-7"}))
	if _, _, err := c.Messages("steps").AcceptSession(t.Context(), forebay.AcceptSessionRequest{}); err != nil {
		t.Fatal(err)
	}
	dashboardtest.Must[forebay.Webhook](t)(c.CreateWebhook(t.Context(), forebay.NewWebhook{Name: "hook", WebhookSettings: forebay.WebhookSettings{URL: "http://127.0.0.1:1/hook"}}))
	dashboardtest.Must[forebay.WebhookTry](t)(c.TestWebhook(t.Context(), "hook"))
	if _, _, err := c.AddDocument(t.Context(), forebay.NewDocument{ID: "harbour", ContentType: "text/plain"}, []byte("The breakwater of the harbour was repaired by the city.")); err != nil {
		t.Fatal(err)
	}
	if d := dashboardtest.Must[forebay.Document](t)(c.WaitDocument(t.Context(), "harbour")); d.Status != forebay.DocumentReady {
		t.Fatalf("the document is %+v", d)
	}
	const sub, subscription = "/topics/orders/subscriptions/large", "/topics/{topic}/subscriptions/{subscription}"
	maps.Copy(screens, map[string]screen{
		"/queues":                                {"/queues", "mail"},
		"/queues/{queue} of jobs":                {"/queues/default", "Pause the queue"},
		"/queues/{queue}":                        {"/queues/mail", letter},
		"/queues/{queue} dead letters":           {"/queues/mail?tab=dead-letters", "the letter cannot be read"},
		"/queues/{queue}/messages/{number}":      {"/queues/mail/messages/" + letter, `"order": 7`},
		"/queues/{queue}/messages/{number} dead": {"/queues/mail/messages/" + dead + "?tab=dead-letters", "the letter cannot be read"},
		"/dead-letters/messages":                 {"/dead-letters/messages", "unreadable"},
		"/queues/{queue}/redrive":                {"/queues/mail/redrive", "2 messages of mail"},
		"/queues/{queue}/purge":                  {"/queues/mail/purge?tab=dead-letters", "2 messages of the dead letters"},
		"/queues/{queue}/delete":                 {"/queues/mail/delete", "2 dead letters go with it"},
		"/topics":                                {"/topics", "orders"},
		"/topics/{topic}":                        {"/topics/orders", "large"},
		"/topics/{topic}/test":                   {"/topics/orders/test?properties=quantity%3D12&sql_filter=quantity+%3E+20", "large"},
		"/topics/{topic}/delete":                 {"/topics/orders/delete", "1 subscription with all messages"},
		subscription:                             {sub, "quantity > 10"},
		subscription + " dead letters":           {sub + "?tab=dead-letters", "the letter cannot be read"},
		subscription + "/messages/{number}":      {sub + "/messages/" + copied, `"order": 7`},
		subscription + "/redrive":                {sub + "/redrive", "2 messages of "},
		subscription + "/purge":                  {sub + "/purge?tab=dead-letters", "2 messages of the dead letters"},
		subscription + "/delete":                 {sub + "/delete", "Type large to confirm"},
		subscription + "/rules/{rule}/remove":    {sub + "/rules/big/remove", "Type big to confirm"},
		"/sessions":                              {"/sessions?queue=steps", "order-7"},
		"/webhooks":                              {"/webhooks", "hook"},
		"/webhooks/{webhook}":                    {"/webhooks/hook", "Send a test event"},
		"/webhooks/{webhook}/rotate":             {"/webhooks/hook/rotate", "Overlap"},
		"/webhooks/{webhook}/delete":             {"/webhooks/hook/delete", "Type hook to confirm"},
		"/documents":                             {"/documents", "harbour"},
		"/documents/{document}":                  {"/documents/harbour", "Embedding"},
		"/documents/{document}/delete":           {"/documents/harbour/delete", "Type harbour to confirm"},
		"/search":                                {"/search?query=breakwater", "breakwater"},
	})
}

// Each screen opens with data on both engines, without a line on the console, and axe-core finds
// nothing. A new page takes its place here.
func TestEveryScreen(t *testing.T) {
	t.Parallel()
	browser, axe := browsertest.Start(t), dashboardtest.AxeSource(t, filepath.Join("..", "testdata", "axe"))
	dashboardtest.OnDatabases(t, func(t *testing.T, database string) {
		s := dashboardtest.Start(t, database, furnished(t))
		key := s.Key(t, forebay.ScopeAdmin)
		page := s.SignIn(t, browser, key)
		screens := map[string]screen{}
		furnishJobs(t, s, key, screens)
		furnishFlows(t, s, key, screens)
		furnishMessages(t, s, key, screens)
		for _, route := range dashboard.New(dashboard.Options{Base: "/ui"}).Routes() {
			pattern := strings.TrimPrefix(route.Path, "/ui")
			if _, tried := screens[pattern]; route.Method == http.MethodGet && !tried && !slices.Contains(noScreens, pattern) {
				t.Errorf("the screen %s is not tried here", pattern)
			}
		}
		engine, in, axe := dashboardtest.LooksOn(database, axe)
		for _, path := range dashboardtest.Navigation(page) {
			if _, tried := screens[path]; !tried && path != "/" {
				t.Errorf("the navigation leads to %s, which is not tried here", path)
			}
		}
		left := make(chan string, len(screens))
		for _, pattern := range slices.Sorted(maps.Keys(screens)) {
			left <- pattern
		}
		close(left)
		var tabs sync.WaitGroup
		for _, tab := range []*browsertest.Page{page, s.SignIn(t, browser, key)} { // each has a process of its own
			tabs.Go(func() {
				for pattern := range left {
					dashboardtest.Inspect(t, tab, axe, s.URL+"/ui"+screens[pattern].path, engine+" "+pattern, screens[pattern].shows, in...)
					var title string
					if tab.Evaluate(`document.title`, &title); title == "broken" {
						t.Errorf("%s runs what somebody wrote", pattern)
						return
					}
				}
			})
		}
		tabs.Wait()
		if t.Failed() {
			return
		}
		if axe == "" {
			return
		}
		for _, dark := range []bool{false, true} { // the frame has parts that only narrow pages show
			page.Look(390, dark)
			page.Go(s.URL + "/ui/backlog")
			page.WaitText("held")
			page.Accessible(axe, fmt.Sprintf("a narrow page, dark %v", dark))
		}
	})
}
