package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// office is a server with work for hours, for somebody who looks at its dashboard.
type office struct {
	*server
	docs  []document
	draw  *rand.Rand // the same work in each run
	count int        // jobs that were submitted
}

// tenants are those of dashboard.yaml, as often as they submit.
var tenants = []string{"acme", "acme", "acme", "birch", "birch", "corvid", ""}

// reference is where the address of the demo's server is expected.
const reference = "127.0.0.1:8080"

// keep runs a server with a backlog until ctx ends.
func keep(ctx context.Context, binary, config, dir string, docs []document) error {
	address := reference
	if l, err := net.Listen("tcp", address); err == nil {
		l.Close()
	} else if address, err = freeAddress(); err != nil {
		return err
	}
	s, err := startServerAt(ctx, binary, config, dir, address)
	if err != nil {
		return err
	}
	defer s.kill()
	o := &office{server: s, docs: docs, draw: rand.New(rand.NewPCG(1, 2))}
	receiver, err := o.receive()
	if err != nil {
		return err
	}
	defer receiver.Close()
	if err := o.fill(ctx, "http://"+receiver.Addr); err != nil {
		return fmt.Errorf("%w%s", err, s.lastWords())
	}
	fmt.Printf("\n  The dashboard:  http://%s/ui\n\n", address)
	fmt.Println("It is open to this machine, because the server has no API key yet. All models are simulated.")
	fmt.Println("More work comes as jobs end; every few minutes a deployment fails for a while. Ctrl-C ends it.")
	if err := o.work(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w%s", err, s.lastWords())
	}
	fmt.Println("\nThe server stops; its data is removed.")
	return s.stop()
}

// fill gives the server something for each of the dashboard's pages.
func (o *office) fill(ctx context.Context, receiver string) error {
	for _, step := range []func() error{
		func() error { return o.webhooks(ctx, receiver) },
		func() error { return o.flows(ctx) }, // they come first, so that they get somewhere soon
		func() error { return o.documents(ctx) },
		func() error { return o.submit(ctx, 240) },
		func() error { return o.troubles(ctx) },
		func() error { return o.batch(ctx) },
		func() error { return o.messages(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// receive answers webhooks: those to /books well, those to /broken with 503.
func (o *office) receive() (*http.Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /books", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /broken", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
	})
	s := &http.Server{Addr: l.Addr().String(), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }() // it ends with Close
	return s, nil
}

func (o *office) webhooks(ctx context.Context, receiver string) error {
	for name, types := range map[string][]forebay.EventType{"books": {forebay.EventSucceeded}, "broken": {forebay.EventDeadLettered}} {
		_, err := o.client.CreateWebhook(ctx, forebay.NewWebhook{Name: name, WebhookSettings: forebay.WebhookSettings{URL: receiver + "/" + name, EventTypes: types}})
		if err != nil {
			return fmt.Errorf("webhook %s: %w", name, err)
		}
	}
	return nil
}

func (o *office) documents(ctx context.Context) error {
	for _, doc := range o.docs[:24] {
		if _, _, err := o.client.AddDocument(ctx, forebay.NewDocument{ID: doc.name, Name: doc.name}, []byte(doc.text)); err != nil {
			return fmt.Errorf("document %s: %w", doc.name, err)
		}
	}
	return nil
}

// kinds are the tasks of jobs, as often as they come.
var kinds = []string{"summarize", "summarize", "classify", "sentiment", "extract", "embed"}

// request is a job about a document.
func (o *office) request() (forebay.SubmitRequest, error) {
	doc, task := o.docs[o.draw.IntN(len(o.docs))], kinds[o.draw.IntN(len(kinds))]
	var input any = doc.text
	if task == "extract" {
		input = map[string]any{"text": doc.text, "schema": map[string]any{"type": "object", "properties": map[string]any{
			"title": map[string]any{"type": "string"}, "people": map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
		}}}
	}
	body, err := json.Marshal(input)
	if err != nil {
		return forebay.SubmitRequest{}, err
	}
	o.count++
	priority, correlation := []int{5, 5, 5, 5, 8, 2}[o.draw.IntN(6)], fmt.Sprint("order-", o.count/4)
	r := forebay.SubmitRequest{Task: task, Input: body, Priority: &priority, CorrelationID: &correlation, Metadata: map[string]string{"document": doc.name}}
	if o.count%12 == 0 {
		session := fmt.Sprint("customer-", o.count%5)
		r.SessionID = &session
	}
	return r, nil
}

// submit submits n jobs of several tenants.
func (o *office) submit(ctx context.Context, n int) error {
	byTenant := map[string][]forebay.SubmitRequest{}
	for range n {
		tenant := tenants[o.draw.IntN(len(tenants))]
		r, err := o.request()
		if err != nil {
			return err
		}
		byTenant[tenant] = append(byTenant[tenant], r)
	}
	for tenant, requests := range byTenant {
		if err := submitAll(ctx, o.client.ForTenant(tenant), requests); err != nil {
			return fmt.Errorf("jobs of %q: %w", tenant, err)
		}
	}
	return nil
}

func submitAll(ctx context.Context, c *client.Client, requests []forebay.SubmitRequest) error {
	for result, err := range c.SubmitBulk(ctx, slices.Values(requests)) {
		if err != nil {
			return err
		}
		if result.Error != nil {
			return result.Error
		}
	}
	return nil
}

// troubles submits what becomes dead letters, and what waits for a time.
func (o *office) troubles(ctx context.Context) error {
	urgent, tomorrow, once := 9, time.Now().Add(18*time.Hour), 1
	var requests []forebay.SubmitRequest
	for i, doc := range o.docs {
		body, err := json.Marshal(doc.text)
		if err != nil {
			return err
		}
		r := forebay.SubmitRequest{Input: body, Metadata: map[string]string{"document": doc.name}}
		switch {
		case doc.name == poison: // refused by the model's content filter
			r.Priority = &urgent
			for _, r.Task = range []string{"summarize", "classify", "sentiment"} {
				requests = append(requests, r)
			}
		case i%12 == 0:
			r.Task, r.ScheduledAt = "summarize", &tomorrow
			requests = append(requests, r)
		case i%5 == 0:
			r.Task, r.MaxAttempts, r.Priority = "classify", &once, &urgent
			requests = append(requests, r)
		}
	}
	if err := submitAll(ctx, o.client, requests); err != nil {
		return err
	}
	refused := slices.DeleteFunc(requests, func(r forebay.SubmitRequest) bool { return r.Metadata["document"] != poison })
	return submitAll(ctx, o.client.ForTenant("acme"), refused)
}

func (o *office) batch(ctx context.Context) error {
	var lines bytes.Buffer
	for i, doc := range o.docs[:40] {
		line, err := json.Marshal(map[string]any{"custom_id": doc.name, "method": http.MethodPost, "url": "/v1/chat/completions", "body": map[string]any{
			"model": "chat", "max_tokens": 200, "messages": []any{map[string]any{"role": "user", "content": fmt.Sprintf("Which language is text %d in?\n\n%s", i+1, doc.text)}},
		}})
		if err != nil {
			return err
		}
		lines.Write(append(line, '\n'))
	}
	file, err := o.client.UploadBatchFile(ctx, "languages.jsonl", &lines)
	if err != nil {
		return fmt.Errorf("file of the batch: %w", err)
	}
	_, err = o.client.CreateBatch(ctx, forebay.NewBatch{InputFile: file, Endpoint: "/v1/chat/completions", Window: "24h", Metadata: map[string]string{"name": "languages"}})
	if err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	for _, question := range []string{"What does a lighthouse keeper do?", "Why is the sky blue?"} {
		body := map[string]any{"model": "chat", "input": question, "background": true}
		if err := o.client.Call(ctx, http.MethodPost, "/v1/responses", nil, body, nil); err != nil {
			return fmt.Errorf("response: %w", err)
		}
	}
	return nil
}

// flows starts workflows: the repository's example, and the built-in one.
func (o *office) flows(ctx context.Context) error {
	var reviews []string
	for _, doc := range o.docs {
		if strings.HasPrefix(doc.name, "review-") {
			reviews = append(reviews, doc.text)
		}
	}
	for i := range 3 {
		input, err := json.Marshal(map[string]any{"product": fmt.Sprint("catalogue ", i+1), "reviews": reviews[:3+2*i]})
		if err != nil {
			return err
		}
		if _, err := o.client.StartOrchestration(ctx, "review", fmt.Sprint("reviews-", i+1), input); err != nil {
			return fmt.Errorf("workflow review: %w", err)
		}
	}
	for _, doc := range o.docs[:4] {
		input, err := json.Marshal(map[string]any{"text": doc.text})
		if err != nil {
			return err
		}
		if _, err := o.client.StartOrchestration(ctx, "analyze-document", doc.name, input); err != nil {
			return fmt.Errorf("workflow analyze-document: %w", err)
		}
	}
	return nil
}

func (o *office) messages(ctx context.Context) error {
	orders := o.client.Messages("orders")
	for i := range 12 {
		body := fmt.Sprintf(`{"order": %d, "pieces": %d}`, 100+i, 1+o.draw.IntN(40))
		if _, err := orders.Send(ctx, forebay.NewMessage{Body: &body, ContentType: "application/json", Subject: "order"}); err != nil {
			return fmt.Errorf("message: %w", err)
		}
	}
	held, err := orders.Receive(ctx, forebay.ReceiveRequest{MaxMessages: 3})
	if err != nil {
		return err
	}
	for i, m := range held {
		if i > 0 { // the first one stays locked
			if err := orders.DeadLetter(ctx, m.LockToken, forebay.Settlement{Reason: "Malformed", Description: "the order names no customer"}); err != nil {
				return err
			}
		}
	}
	for i, text := range []string{"pump 3 is loud", "level sensor is silent", "gate 2 does not close"} {
		if _, err := o.client.Publish(ctx, "incidents", forebay.NewMessage{Body: &text, Properties: forebay.Properties{"severity": int64(i + 1)}}); err != nil {
			return fmt.Errorf("topic: %w", err)
		}
	}
	return nil
}

const (
	lowWater  = 150              // ready jobs, below which more are submitted
	outage    = 25 * time.Second // how long a deployment fails
	betweenIt = 3 * time.Minute
)

// work submits more as jobs end, and lets a deployment fail now and then, until ctx ends.
func (o *office) work(ctx context.Context) error {
	more, fails := time.NewTicker(2*time.Second), time.NewTimer(time.Minute)
	defer more.Stop()
	defer fails.Stop()
	var calm json.RawMessage // the settings to go back to
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-o.exited:
			o.exited <- nil
			return fmt.Errorf("the server ended: %w", err)
		case <-more.C:
			if err := o.allowed(ctx, func() error { return o.topUp(ctx) }); err != nil {
				return err
			}
		case <-fails.C:
			wait := outage
			err := o.allowed(ctx, func() (err error) {
				if calm == nil {
					calm, err = worsen(ctx, o.client, "east")
				} else if err = o.client.SetSimFaults(ctx, "east", calm); err == nil {
					calm, wait = nil, betweenIt
				}
				return err
			})
			if err != nil {
				return err
			}
			fails.Reset(wait)
		}
	}
}

// allowed acts again with a key, if the server does not answer without one any more: somebody has
// made its first key.
func (o *office) allowed(ctx context.Context, act func() error) error {
	err := act()
	if forebay.CodeOf(err) != forebay.CodeUnauthorized {
		return err
	}
	if err := o.makeKey(ctx); err != nil {
		return err
	}
	fmt.Println("The server has an API key now, so it asks for one, also in the dashboard. The work goes on with a key of its own.")
	return act()
}

// topUp submits a few jobs if not many wait.
func (o *office) topUp(ctx context.Context) error {
	backlog, err := o.client.Backlog(ctx, true)
	if err != nil {
		return err
	}
	var ready int64
	for _, line := range backlog.Lines {
		ready += line.WaitingEstimate
	}
	if ready >= lowWater {
		return nil
	}
	return o.submit(ctx, 1+o.draw.IntN(5))
}
