package webhook

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
)

// refresh is how often the list of webhooks is read again, in case the notification of a change
// was lost.
const refresh = 30 * time.Second

// Run delivers to all webhooks until ctx ends. Deliveries under way may then end within the grace
// period.
func (s *Service) Run(ctx context.Context) {
	f := fleet{service: s, runners: map[int64]*running{}}
	defer s.sender.Close()
	defer f.all.Wait() // they end with ctx
	for {
		if err := f.adjust(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot read the webhooks", slog.Any("error", err))
		}
		timer := time.NewTimer(refresh)
		select {
		case <-timer.C:
		case <-s.changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// wake makes Run read the webhooks again.
func (s *Service) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// fleet has a runner for each webhook that gets deliveries.
type fleet struct {
	service *Service
	runners map[int64]*running // by subscription
	all     sync.WaitGroup     // of runners, also those that are stopping
}

type running struct {
	*Runner
	concurrency int
	stop        context.CancelFunc
	done        chan struct{}
}

// adjust starts, changes and stops runners to match the stored webhooks.
func (f *fleet) adjust(ctx context.Context) error {
	active, err := f.service.store.ActiveWebhooks(ctx)
	if err != nil {
		return err
	}
	wanted := map[int64]bool{}
	for _, w := range active {
		wanted[w.Queue] = true
		r := f.runners[w.Queue]
		if r != nil && (r.concurrency != w.Concurrency || r.ended()) {
			f.stop(w.Queue)
			r = nil
		}
		if r == nil {
			f.start(ctx, w)
			continue
		}
		r.Update(f.service.endpointOf(w))
	}
	for queue := range f.runners {
		if !wanted[queue] {
			f.stop(queue)
		}
	}
	return nil
}

func (f *fleet) start(ctx context.Context, w Webhook) {
	ctx, stop := context.WithCancel(ctx)
	source := subscription{service: f.service, queue: bus.MessageQueue{No: w.Queue, Tenant: w.Tenant, Lock: MinLock, MaxDeliveries: MaxTries}}
	r := &running{Runner: NewRunner(f.service.endpointOf(w), source, f.service.sender, f.service.log, f.service.grace), concurrency: w.Concurrency, stop: stop, done: make(chan struct{})}
	f.runners[w.Queue] = r
	f.all.Go(func() {
		defer close(r.done)
		r.Run(ctx)
	})
}

func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// stop lets a runner take nothing more. Its deliveries under way end on their own.
func (f *fleet) stop(queue int64) {
	f.runners[queue].stop()
	delete(f.runners, queue)
}

func (s *Service) endpointOf(w Webhook) Endpoint {
	e := Endpoint{ID: w.Queue, Tenant: w.TenantName, Name: w.Name, URL: w.URL, Concurrency: w.Concurrency}
	for _, stored := range w.Secrets {
		secret := SigningSecret{Secret: forebay.Secret(stored.Secret)}
		if stored.Until != nil {
			secret.Until = s.store.ToLocal(*stored.Until)
		}
		e.Secrets = append(e.Secrets, secret)
	}
	return e
}

// subscription is the Source of a webhook.
type subscription struct {
	service *Service
	queue   bus.MessageQueue
}

// Receive implements Source.
func (s subscription) Receive(ctx context.Context) (Delivery, error) {
	for {
		got, err := s.service.bus.Receive(ctx, bus.ReceiveRequest{Queue: s.queue, Max: 1, MaxBytes: 1, Wait: true, Webhook: true})
		if err != nil {
			return Delivery{}, err
		}
		if len(got) == 0 {
			continue
		}
		m := got[0]
		message := Message{ID: m.MessageID, Type: m.Subject, ContentType: m.ContentType, Traceparent: traceparentOf(m.Properties), Body: m.Body}
		return Delivery{Message: message, Lock: m.Lock, Count: m.Deliveries}, nil
	}
}

// traceparentOf returns the trace context in the properties of an event, if there is one.
func traceparentOf(encoded []byte) string {
	var properties struct {
		Traceparent string `json:"traceparent"`
	}
	_ = json.Unmarshal(encoded, &properties) // encoded by ourselves; empty without properties
	return properties.Traceparent
}

// Settle implements Source.
func (s subscription) Settle(ctx context.Context, d Delivery, o Outcome) error {
	stored := WebhookOutcome{Delivered: o.Verb == Complete, Release: o.Verb == Release, Delay: o.Delay, Gone: o.Disable, Hold: o.Hold, URL: o.URL, Try: tryOf(d, o)}
	if o.Verb == GiveUp {
		stored.DeadLetter = bus.DeadLettering{Reason: o.Reason, Description: o.Detail}
	}
	disabled, err := s.service.store.SettleWebhook(ctx, s.queue.No, d.Lock, stored)
	if disabled {
		s.service.log.Warn("a webhook was disabled", slog.Int64("subscription", s.queue.No), slog.Bool("gone", o.Disable))
		s.service.wake()
	}
	return err
}

// tryOf is the record of a try.
func tryOf(d Delivery, o Outcome) forebay.WebhookTry {
	t := forebay.WebhookTry{MessageID: deliveryID(d.ID), EventType: d.Type, At: o.Attempt.At.UTC(), Number: d.Count, Outcome: forebay.WebhookRetry,
		Status: o.Attempt.Status, Failure: string(o.Attempt.Failure), DurationSeconds: o.Attempt.Duration.Seconds()}
	if o.Attempt.Failure != "" {
		t.Detail = o.Attempt.String()
	}
	switch o.Verb {
	case Complete:
		t.Outcome = forebay.WebhookDelivered
	case GiveUp:
		t.Outcome = forebay.WebhookDeadLettered
	}
	return t
}

// newTestID names a test event.
func newTestID() string { return "test_" + strings.ToLower(rand.Text()) }

// hostOf returns the part of a URL that the audit log shows: the path and query may be secret.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
