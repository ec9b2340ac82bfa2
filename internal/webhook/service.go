package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/limits"
	"github.com/forebayhq/forebay/internal/queue"
)

// Options are the settings of a Service.
type Options struct {
	Store  *Store
	Bus    *bus.Store // has the subscriptions
	Sender SenderOptions
	Logger *slog.Logger  // nil: slog.Default
	Limits *limits.Meter // limits on what tenants create; nil: none
	Grace  time.Duration // how long deliveries may take to end at a stop; default and maximum DefaultGrace
}

// Service keeps the webhooks of all tenants, and delivers to them while Run runs. All methods are
// safe for concurrent use. They return *forebay.Error values for a caller's mistakes. actor names
// who acts, for the audit log.
type Service struct {
	store   *Store
	bus     *bus.Store
	sender  *Sender
	log     *slog.Logger
	grace   time.Duration
	limits  *limits.Meter
	changed chan struct{} // holds a token when the webhooks may have changed
}

// New returns the service over the store.
func New(opts Options) *Service {
	s := &Service{store: opts.Store, bus: opts.Bus, sender: NewSender(opts.Sender), log: opts.Logger, limits: opts.Limits, changed: make(chan struct{}, 1),
		grace: min(cmp.Or(opts.Grace, DefaultGrace), DefaultGrace)}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.store.OnWebhooksChanged(s.wake)
	return s
}

// Create creates a webhook. Only its answer shows the secret.
func (s *Service) Create(ctx context.Context, tenant string, wanted forebay.NewWebhook, actor string) (forebay.Webhook, error) {
	if !forebay.ValidName(wanted.Name) || len(wanted.Name) > forebay.MaxWebhookNameBytes {
		return forebay.Webhook{}, forebay.Invalid("name", "must be 1 to %d letters, digits, dots, underscores and hyphens, beginning with a letter or digit", forebay.MaxWebhookNameBytes)
	}
	secret, err := secretOrNew(wanted.Secret)
	if err != nil {
		return forebay.Webhook{}, err
	}
	w, err := s.settings(ctx, wanted.WebhookSettings)
	if err != nil {
		return forebay.Webhook{}, err
	}
	if w.Tenant, err = s.store.EnsureTenant(ctx, tenant); err != nil {
		return forebay.Webhook{}, err
	}
	done, err := s.limits.Take(ctx, tenant, forebay.LimitWebhooks, 1)
	if err != nil {
		return forebay.Webhook{}, err
	}
	defer done()
	w.TenantName, w.Name, w.Secrets = tenant, wanted.Name, []WebhookSecret{{Secret: secret.Reveal()}}
	w, err = s.store.CreateWebhook(ctx, w, act(tenant, actor, "create-webhook", wanted.Name, wanted.WebhookSettings))
	if err != nil {
		return forebay.Webhook{}, err
	}
	s.wake()
	created, err := s.view(ctx, w)
	created.Secret = secret.Reveal()
	return created, err
}

// Update changes a webhook's settings. A setting that is left out gets its default.
func (s *Service) Update(ctx context.Context, tenant, name string, settings forebay.WebhookSettings, actor string) (forebay.Webhook, error) {
	w, err := s.settings(ctx, settings)
	if err != nil {
		return forebay.Webhook{}, err
	}
	if w.Tenant, err = s.store.EnsureTenant(ctx, tenant); err != nil {
		return forebay.Webhook{}, err
	}
	w.TenantName, w.Name = tenant, name
	w, err = s.store.UpdateWebhook(ctx, w, act(tenant, actor, "update-webhook", name, settings))
	if forebay.CodeOf(err) == forebay.CodeNotFound {
		err = forebay.Errorf(forebay.CodeNotFound, "there is no webhook %.80q to change; POST /v1/webhooks makes one", name)
	}
	if err != nil {
		return forebay.Webhook{}, err
	}
	s.wake()
	return s.view(ctx, w)
}

// act returns the audit row of a change. It shows only the host of a URL.
func act(tenant, actor, action, name string, detail any) audit.Act {
	if settings, ok := detail.(forebay.WebhookSettings); ok {
		settings.URL = hostOf(settings.URL)
		detail = settings
	}
	text := ""
	if detail != nil {
		if b, err := json.Marshal(detail); err == nil {
			text = string(b)
		}
	}
	return audit.Act{Tenant: tenant, Actor: actor, Action: action, Target: name, Detail: text}
}

// settings checks the settings that a caller asks for.
func (s *Service) settings(ctx context.Context, wanted forebay.WebhookSettings) (w Webhook, err error) {
	for i, name := range wanted.EventTypes {
		if !slices.Contains(forebay.EventTypes, name) {
			return w, forebay.Invalid("event_types", "%.40q is not the type of an event", string(name))
		}
		if slices.Contains(wanted.EventTypes[:i], name) {
			return w, forebay.Invalid("event_types", "names %q twice", string(name))
		}
	}
	concurrency := cmp.Or(wanted.Concurrency, forebay.DefaultWebhookConcurrency)
	if concurrency < 1 || concurrency > forebay.MaxWebhookConcurrency {
		return w, forebay.Invalid("concurrency", "goes from 1 to %d", forebay.MaxWebhookConcurrency)
	}
	// A disabled webhook is checked when it is enabled. A host name that no longer exists must
	// not keep it from being disabled.
	if wanted.Disabled {
		_, err = s.sender.Policy().parseURL(wanted.URL)
	} else {
		err = s.sender.Policy().CheckURL(ctx, wanted.URL)
	}
	if err != nil {
		return w, err
	}
	w = Webhook{URL: wanted.URL, EventTypes: wanted.EventTypes, Concurrency: concurrency}
	if wanted.Disabled {
		w.DisabledAt = &time.Time{} // the store sets the time
	}
	return w, nil
}

func secretOrNew(given string) (forebay.Secret, error) {
	if given == "" {
		return NewSecret(), nil
	}
	secret := forebay.Secret(given)
	_, err := ParseSecret(secret)
	return secret, err
}

// Delete deletes a webhook and every event that waits for it, its dead letters included.
func (s *Service) Delete(ctx context.Context, tenant, name, actor string) error {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return err
	}
	if err := s.store.DeleteWebhook(ctx, no, name, act(tenant, actor, "delete-webhook", name, nil)); err != nil {
		return err
	}
	s.wake()
	return nil
}

// RotateSecret gives a webhook another secret and returns it. The former secret goes on signing
// for a while, so that receivers can change over.
func (s *Service) RotateSecret(ctx context.Context, tenant, name string, req forebay.RotateSecretRequest, actor string) (forebay.Webhook, error) {
	overlap := forebay.DefaultSecretOverlap
	if req.OverlapHours != nil {
		if h := *req.OverlapHours; !(h >= 0 && h <= forebay.MaxSecretOverlap.Hours()) {
			return forebay.Webhook{}, forebay.Invalid("overlap_hours", "goes from 0 to %g", forebay.MaxSecretOverlap.Hours())
		}
		overlap = time.Duration(*req.OverlapHours * float64(time.Hour))
	}
	secret, err := secretOrNew(req.Secret)
	if err != nil {
		return forebay.Webhook{}, err
	}
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return forebay.Webhook{}, err
	}
	detail := map[string]string{"overlap": overlap.String()}
	w, err := s.store.RotateWebhookSecret(ctx, no, name, secret.Reveal(), overlap, act(tenant, actor, "rotate-webhook-secret", name, detail))
	if err != nil {
		return forebay.Webhook{}, err
	}
	s.wake()
	rotated, err := s.view(ctx, w)
	rotated.Secret = secret.Reveal()
	return rotated, err
}

// Webhook returns a webhook of the tenant.
func (s *Service) Webhook(ctx context.Context, tenant, name string) (forebay.Webhook, error) {
	w, err := s.find(ctx, tenant, name)
	if err != nil {
		return forebay.Webhook{}, err
	}
	return s.view(ctx, w)
}

func (s *Service) find(ctx context.Context, tenant, name string) (Webhook, error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return Webhook{}, err
	}
	return s.store.Webhook(ctx, no, name)
}

// Webhooks returns the tenant's webhooks by name.
func (s *Service) Webhooks(ctx context.Context, tenant string) ([]forebay.Webhook, error) {
	no, err := s.store.EnsureTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	stored, err := s.store.Webhooks(ctx, no)
	if err != nil {
		return nil, err
	}
	list := make([]forebay.Webhook, len(stored))
	for i, w := range stored {
		if list[i], err = s.view(ctx, w); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// view returns the webhook as its tenant sees it.
func (s *Service) view(ctx context.Context, w Webhook) (forebay.Webhook, error) {
	v := forebay.Webhook{
		Name: w.Name, URL: w.URL, EventTypes: w.EventTypes, Concurrency: w.Concurrency, CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt, Tagged: forebay.Tagged{ETag: w.ETag()},
		DisabledAt: w.DisabledAt, DisabledReason: w.DisabledReason, DeliveredAt: w.DeliveredAt, FailingSince: w.FailingSince,
	}
	if v.EventTypes == nil {
		v.EventTypes = []forebay.EventType{}
	}
	now := s.store.Now()
	if w.PausedUntil != nil && w.PausedUntil.After(now) {
		v.PausedUntil = w.PausedUntil
	}
	for _, secret := range w.Secrets {
		if secret.Until == nil || secret.Until.After(now) {
			v.Secrets++
		}
	}
	if !w.Subscribed {
		v.DisabledReason = forebay.WebhookSubscriptionDeleted
		return v, nil
	}
	counts, err := s.bus.MessageCounts(ctx, bus.MessageQueue{No: w.Queue}, entity.CountLimitOf(forebay.MaxWebhooks))
	if err != nil {
		return v, err
	}
	v.Pending, v.DeadLetters = counts.Active+counts.Scheduled+counts.Locked, counts.DeadLetter
	tries, err := s.store.WebhookTries(ctx, w.Queue, 1)
	if len(tries) > 0 {
		v.LastTry = &tries[0]
	}
	return v, err
}

// Tries returns the latest tries of a webhook, newest first: a hundred at most.
func (s *Service) Tries(ctx context.Context, tenant, name string) ([]forebay.WebhookTry, error) {
	w, err := s.find(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	return s.store.WebhookTries(ctx, w.Queue, 100)
}

// maxPeekBytes bounds what one page of dead letters reads.
const maxPeekBytes = 4 << 20

// DeadLetters returns the events that a webhook gave up, oldest first.
func (s *Service) DeadLetters(ctx context.Context, tenant, name string, limit int, cursor string) (forebay.Page[forebay.WebhookDeadLetter], error) {
	page := forebay.Page[forebay.WebhookDeadLetter]{Items: []forebay.WebhookDeadLetter{}}
	from := int64(0)
	if cursor != "" {
		var err error
		if from, err = strconv.ParseInt(cursor, 10, 64); err != nil || from < 0 {
			return page, &forebay.Error{Code: forebay.CodeInvalidCursor, Field: "cursor", Message: "is not a next_cursor of this list"}
		}
	}
	w, err := s.find(ctx, tenant, name)
	if err != nil {
		return page, err
	}
	limit = min(cmp.Or(limit, forebay.DefaultPageSize), forebay.MaxPageSize)
	messages, next, _, err := s.bus.Peek(ctx, bus.PeekQuery{Subqueue: queue.SubqueueOf(w.Queue, queue.SubqueueDeadLetter), From: from, Limit: limit, MaxBytes: maxPeekBytes, AtLeast: 1})
	for _, m := range messages {
		page.Items = append(page.Items, forebay.WebhookDeadLetter{SequenceNumber: m.Seq, MessageID: deliveryID(m.MessageID), EventType: m.Subject,
			CorrelationID: m.CorrelationID, EnqueuedAt: m.EnqueuedAt, Tries: m.Deliveries, Reason: m.DeadLetterReason, Description: m.DeadLetterDescription})
	}
	if next > 0 {
		page.NextCursor = strconv.FormatInt(next, 10)
	}
	return page, err
}

// redeliverStep is how many events one transaction sends back.
const redeliverStep = 500

// Redeliver sends dead letters of a webhook again, beginning with the first try.
func (s *Service) Redeliver(ctx context.Context, tenant, name string, req forebay.RedeliverRequest, actor string) (report forebay.RedeliverReport, err error) {
	switch {
	case req.All == (len(req.SequenceNumbers) > 0):
		return report, forebay.Invalid("body", "must hold sequence_numbers, or all: true")
	case len(req.SequenceNumbers) > forebay.MaxRedeliveriesPerCall:
		return report, forebay.Invalid("sequence_numbers", "has %d numbers; the limit is %d", len(req.SequenceNumbers), forebay.MaxRedeliveriesPerCall)
	}
	w, err := s.find(ctx, tenant, name)
	if err != nil {
		return report, err
	}
	audit := act(tenant, actor, "redeliver", name, req)
	if !req.All {
		report.Redelivered, err = s.store.Redeliver(ctx, w.Queue, req.SequenceNumbers, 0, audit)
		return report, err
	}
	// Events that fail again meanwhile are not sent a second time: only the present number is.
	counts, err := s.bus.MessageCounts(ctx, bus.MessageQueue{No: w.Queue}, math.MaxInt64>>1)
	for left := int(counts.DeadLetter); err == nil && left > 0; {
		var moved int
		moved, err = s.store.Redeliver(ctx, w.Queue, nil, min(left, redeliverStep), audit)
		report.Redelivered += moved
		if left -= moved; moved == 0 {
			break
		}
	}
	return report, err
}

// testJob is the id of the job in a test event. No job has it.
const testJob = "job_00000000000000000000000000"

// Test sends a webhook an event of the type webhook.test, once and at once, even while the
// webhook is disabled. It looks like the event of a job and names the webhook.
func (s *Service) Test(ctx context.Context, tenant, name string) (forebay.WebhookTry, error) {
	w, err := s.find(ctx, tenant, name)
	if err != nil {
		return forebay.WebhookTry{}, err
	}
	m := Message{ID: newTestID(), Type: forebay.EventWebhookTest}
	now := time.Now().UTC().Truncate(time.Millisecond)
	event := forebay.Event{Number: 1, Type: forebay.EventType(m.Type), JobID: testJob, CorrelationID: testJob, At: now,
		Status: forebay.StatusSucceeded, Generation: 1, Attempt: 1, Result: json.RawMessage(`{"text":"This is a test."}`)}
	event.Describe("chat", forebay.DefaultQueue, map[string]string{"test": "true"})
	m.Body, err = json.Marshal(struct {
		forebay.Event
		Timestamp time.Time         `json:"timestamp"`
		Data      map[string]string `json:"data"`
	}{event, now, map[string]string{"webhook": name, "tenant": tenant}})
	if err != nil {
		return forebay.WebhookTry{}, err
	}
	attempt := s.sender.Send(ctx, s.endpointOf(w), m)
	outcome := Outcome{Verb: Complete, Attempt: attempt}
	if attempt.Failure != "" {
		outcome.Verb = GiveUp
	}
	return tryOf(Delivery{Message: m, Count: 1}, outcome), nil
}
