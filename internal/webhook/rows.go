package webhook

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// Webhook is an endpoint as stored, with its subscription of the tenant's job events.
type Webhook struct {
	Tenant         int64
	TenantName     string
	Name           string
	Queue          int64 // the subscription's number
	Subscribed     bool  // the subscription exists
	URL            string
	EventTypes     []forebay.EventType // none: all
	Concurrency    int
	Secrets        []WebhookSecret // the current one first
	CreatedAt      time.Time
	UpdatedAt      time.Time
	DisabledAt     *time.Time
	DisabledReason string
	DeliveredAt    *time.Time
	FailingSince   *time.Time
	PausedUntil    *time.Time // nothing is sent before; may be in the past
	breaker        breaker
}

// ETag returns the entity tag of the settings and secrets. Every change has an UpdatedAt of its
// own, so no secret is part of the tag. Being disabled by the server counts as a change.
func (w Webhook) ETag() string {
	return forebay.ETagOf(w.Tenant, w.Name, w.CreatedAt.UnixMilli(), w.UpdatedAt.UnixMilli(), w.URL, eventTypes(w), w.Concurrency,
		driver.Millis(w.DisabledAt), w.DisabledReason)
}

// changedAt is the time of a change that follows the present state.
func (t *tx) changedAt(before Webhook) int64 {
	return max(t.Now, before.UpdatedAt.UnixMilli()+1)
}

// WebhookSecret is one of the secrets that sign deliveries.
type WebhookSecret struct {
	Secret string     `json:"secret"`
	Until  *time.Time `json:"until,omitempty"` // nil: for good
}

// Settings of a webhook's subscription. An event that could not be delivered for webhookTTL is
// given up, even if the breaker allowed no try.
const (
	webhookTTL           = 4 * 24 * time.Hour
	webhookSubscriptions = "webhook-" // and the webhook's name
)

// WebhookSubscription is the name of a webhook's subscription within its topic.
func WebhookSubscription(name string) string { return webhookSubscriptions + name }

const webhookColumns = `
SELECT w.tenant, t.name, w.name, w.queue, w.url, w.event_types, w.concurrency, w.secrets, w.created_at, w.updated_at, w.disabled_at,
  w.disabled_reason, w.delivered_at, w.failing_since, (SELECT count(*) FROM queues q WHERE q.no = w.queue AND q.kind = 'messages'), w.failures, w.openings, w.paused_until
FROM webhooks w JOIN tenants t ON t.no = w.tenant `

func readWebhook(r driver.Row) (w Webhook, err error) {
	w = Webhook{Tenant: r.Int(0), TenantName: r.Text(1), Name: r.Text(2), Queue: r.Int(3), URL: r.Text(4), Concurrency: int(r.Int(6)),
		CreatedAt: driver.FromMillis(r.Int(8)), UpdatedAt: driver.FromMillis(r.Int(9)), DisabledAt: driver.FromMillisOrNil(r, 10), DisabledReason: r.Text(11),
		DeliveredAt: driver.FromMillisOrNil(r, 12), FailingSince: driver.FromMillisOrNil(r, 13), Subscribed: r.Int(14) != 0, PausedUntil: driver.FromMillisOrNil(r, 17),
		breaker: breaker{failures: r.Int(15), openings: r.Int(16), until: r.Int(17)}}
	for name := range strings.FieldsSeq(r.Text(5)) {
		w.EventTypes = append(w.EventTypes, forebay.EventType(name))
	}
	return w, json.Unmarshal(r.Blob(7), &w.Secrets)
}

func readWebhooks(c driver.Conn, sql string, bind func(driver.Statement) driver.Statement) (list []Webhook, err error) {
	err = bind(c.Prep(webhookColumns + sql)).Each(func(r driver.Row) error {
		w, err := readWebhook(r)
		list = append(list, w)
		return err
	})
	return list, err
}

// Webhooks returns a tenant's webhooks by name.
func (s *Store) Webhooks(ctx context.Context, tenant int64) (list []Webhook, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		list, err = readWebhooks(c, "WHERE w.tenant = ? ORDER BY w.name", func(st driver.Statement) driver.Statement { return st.Int(tenant) })
		return err
	})
	return list, err
}

// ActiveWebhooks returns the webhooks of all tenants that get deliveries.
func (s *Store) ActiveWebhooks(ctx context.Context) (list []Webhook, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		list, err = readWebhooks(c, "JOIN queues q ON q.no = w.queue WHERE w.disabled_at IS NULL AND q.kind = 'messages' ORDER BY w.queue",
			func(st driver.Statement) driver.Statement { return st })
		return err
	})
	return list, err
}

const sqlOneWebhook = "WHERE w.tenant = ? AND w.name = ?"

// Webhook returns a tenant's webhook of that name.
func (s *Store) Webhook(ctx context.Context, tenant int64, name string) (w Webhook, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		w, err = webhookNamed(c, tenant, name)
		return err
	})
	return w, err
}

func webhookNamed(c driver.Conn, tenant int64, name string) (Webhook, error) {
	list, err := readWebhooks(c, sqlOneWebhook, func(st driver.Statement) driver.Statement { return st.Int(tenant).Text(name) })
	if err == nil && len(list) == 0 {
		err = forebay.Errorf(forebay.CodeNotFound, "there is no webhook %.80q", name)
	}
	if err != nil {
		return Webhook{}, err
	}
	return list[0], nil
}

const sqlInsertWebhook = `
INSERT INTO webhooks (tenant, name, queue, url, event_types, concurrency, secrets, created_at, updated_at, disabled_at, disabled_reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// CreateWebhook creates a webhook and its subscription, and the tenant's topic of job events if
// it does not exist.
func (s *Store) CreateWebhook(ctx context.Context, w Webhook, audit audit.Act) (Webhook, error) {
	return db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (Webhook, error) {
		var count, same int64
		if _, err := t.Prep("SELECT count(*), count(*) FILTER (WHERE name = ?) FROM webhooks WHERE tenant = ?").Text(w.Name).Int(w.Tenant).
			One(func(r driver.Row) { count, same = r.Int(0), r.Int(1) }); err != nil {
			return w, err
		}
		switch {
		case same > 0:
			return w, &forebay.Error{Code: forebay.CodeConflict, Field: "name", Message: "there is a webhook of that name"}
		case count >= forebay.MaxWebhooks:
			return w, forebay.Errorf(forebay.CodeConflict, "a tenant may have at most %d webhooks", forebay.MaxWebhooks)
		}
		queue, err := t.subscribeWebhook(w)
		if err != nil {
			return w, err
		}
		w.Queue = queue
		secrets, err := json.Marshal(w.Secrets)
		if err != nil {
			return w, err
		}
		disabledAt, reason := t.disabling(w)
		err = t.Prep(sqlInsertWebhook).Int(w.Tenant).Text(w.Name).Int(queue).Text(w.URL).Text(eventTypes(w)).Int(int64(w.Concurrency)).Blob(secrets).
			Int(t.Now).Int(t.Now).IntOrNull(disabledAt).TextOrNull(reason).Exec()
		if err != nil {
			return w, err
		}
		return t.changedWebhook(w, audit)
	})
}

// changedWebhook ends a change: it writes the audit row and returns the webhook as it is stored.
func (t *tx) changedWebhook(w Webhook, entry audit.Act) (Webhook, error) {
	t.Notify(wordWebhooks, 0, 0, 0)
	if err := audit.Append(t.Tx.Tx, entry); err != nil {
		return w, err
	}
	return webhookNamed(t.Conn, w.Tenant, w.Name)
}

func eventTypes(w Webhook) string {
	names := make([]string, len(w.EventTypes))
	for i, name := range w.EventTypes {
		names[i] = string(name)
	}
	return strings.Join(names, " ")
}

// disabling returns what a webhook's row says of being disabled on request.
func (t *tx) disabling(w Webhook) (at int64, reason string) {
	if w.DisabledAt == nil {
		return 0, ""
	}
	return t.Now, forebay.WebhookDisabled
}

// subscribeWebhook creates the subscription of a webhook and returns its number.
func (t *tx) subscribeWebhook(w Webhook) (int64, error) {
	if err := t.Entities.DropNow(); err != nil {
		return 0, err
	}
	topicName := w.TenantName + "/" + forebay.TopicJobEvents
	name := entity.SubscriptionName(topicName, WebhookSubscription(w.Name))
	topic, found, err := t.MessageQueueNamed(topicName)
	if err != nil {
		return 0, err
	}
	if found && !topic.IsTopic {
		return 0, topic.ErrOtherKind()
	}
	if _, taken, err := t.MessageQueueNamed(name); err != nil || taken {
		if err == nil {
			err = forebay.Errorf(forebay.CodeConflict, "the topic %s has a subscription %s already", forebay.TopicJobEvents, WebhookSubscription(w.Name))
		}
		return 0, err
	}
	settings := bus.MessageQueue{Tenant: w.Tenant, Lock: forebay.DefaultLockDuration, MaxDeliveries: forebay.DefaultMaxDeliveryCount}
	if !found {
		wanted := settings
		wanted.Name, wanted.IsTopic = topicName, true
		put, err := t.Entities.Put(wanted, forebay.MaxTopics)
		if err != nil {
			return 0, err
		}
		topic = put.MessageQueue
	}
	settings.Name, settings.Topic, settings.DefaultTTL, settings.DeadLetterExpired = name, topic.No, webhookTTL, true
	sub, err := t.Entities.Put(settings, forebay.MaxEventListeners)
	if err != nil {
		return 0, err
	}
	return sub.No, t.webhookRules(sub.MessageQueue, w)
}

// webhookRules makes the subscription select the webhook's events: those of its types, or all if
// it names none. A disabled webhook gets none.
func (t *tx) webhookRules(sub bus.MessageQueue, w Webhook) error {
	if err := t.Prep("DELETE FROM rules WHERE queue = ?").Int(sub.No).Exec(); err != nil {
		return err
	}
	var rules []bus.Rule
	for _, name := range w.EventTypes {
		rules = append(rules, bus.Rule{Name: string(name), Settings: forebay.RuleSettings{CorrelationFilter: &forebay.CorrelationFilter{Subject: string(name)}}})
	}
	if len(rules) == 0 {
		everything := true
		rules = []bus.Rule{{Name: forebay.DefaultRule, Settings: forebay.RuleSettings{BooleanFilter: &everything}}}
	}
	if w.DisabledAt != nil {
		rules = nil
	}
	for _, r := range rules {
		if err := entity.InsertRule(t.Conn, sub.No, r, t.Now); err != nil {
			return err
		}
	}
	return t.Entities.ChangeTopic(sub.Topic)
}

const sqlUpdateWebhook = `
UPDATE webhooks SET queue = ?, url = ?, event_types = ?, concurrency = ?, updated_at = ?, disabled_at = ?, disabled_reason = ?,
  failing_since = ?, failures = ?, openings = ?, paused_until = ?
WHERE tenant = ? AND name = ?`

// UpdateWebhook changes a webhook's settings. If its subscription was deleted it gets a new one.
func (s *Store) UpdateWebhook(ctx context.Context, w Webhook, audit audit.Act) (Webhook, error) {
	return db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (Webhook, error) {
		before, err := webhookNamed(t.Conn, w.Tenant, w.Name)
		if err == nil {
			err = forebay.ConditionOf(ctx).Check(before.ETag())
		}
		if err != nil {
			return w, err
		}
		disabledAt, reason := t.disabling(w)
		if w.DisabledAt != nil && before.DisabledAt != nil { // it stays disabled, with the former time and reason
			disabledAt, reason = before.DisabledAt.UnixMilli(), before.DisabledReason
		}
		failing, known := driver.Millis(before.FailingSince), before.breaker
		if before.URL != w.URL || before.DisabledAt != nil { // a new address, or a fresh start, begins without failures
			failing, known = 0, breaker{}
		}
		w.Queue = before.Queue
		sub, found, err := t.MessageQueue(before.Queue)
		if err == nil && found {
			err = t.webhookRules(sub, w)
		} else if err == nil {
			if w.Queue, err = t.subscribeWebhook(w); err == nil {
				err = t.Prep(sqlDeleteWebhookDeliveries).Int(before.Queue).Exec()
			}
			if err == nil {
				err = t.Prep(sqlMoveWebhookTries).Int(w.Queue).Int(before.Queue).Exec()
			}
		}
		if err != nil {
			return w, err
		}
		if err := t.Prep(sqlUpdateWebhook).Int(w.Queue).Text(w.URL).Text(eventTypes(w)).Int(int64(w.Concurrency)).Int(t.changedAt(before)).
			IntOrNull(disabledAt).TextOrNull(reason).IntOrNull(failing).Int(known.failures).Int(known.openings).IntOrNull(known.until).Int(w.Tenant).Text(w.Name).Exec(); err != nil {
			return w, err
		}
		t.wakeReceivers(w.Queue, false)
		return t.changedWebhook(w, audit)
	})
}

const (
	sqlDeleteWebhookDeliveries = "DELETE FROM webhook_deliveries WHERE queue = ?"
	sqlMoveWebhookTries        = "UPDATE webhook_tries SET queue = ? WHERE queue = ?"
)

// endWebhookDeliveries deletes the deliveries of a process that is dead. Their messages stay
// locked, because nobody knows what was sent.
func (t *tx) endWebhookDeliveries() error {
	return t.Prep("DELETE FROM webhook_deliveries").Exec()
}

// DeleteWebhook deletes a webhook with its subscription and every event in it.
func (s *Store) DeleteWebhook(ctx context.Context, tenant int64, name string, entry audit.Act) error {
	_, err := db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (struct{}, error) {
		w, err := webhookNamed(t.Conn, tenant, name)
		if err == nil {
			err = forebay.ConditionOf(ctx).Check(w.ETag())
		}
		if err != nil {
			return struct{}{}, err
		}
		if _, err := t.Entities.Drop(w.Queue); err != nil {
			return struct{}{}, err
		}
		for _, sql := range []string{"DELETE FROM webhook_tries WHERE queue = ?", sqlDeleteWebhookDeliveries} {
			if err := t.Prep(sql).Int(w.Queue).Exec(); err != nil {
				return struct{}{}, err
			}
		}
		if err := t.Prep("DELETE FROM webhooks WHERE tenant = ? AND name = ?").Int(tenant).Text(name).Exec(); err != nil {
			return struct{}{}, err
		}
		t.Notify(wordWebhooks, 0, 0, 0)
		return struct{}{}, audit.Append(t.Tx.Tx, entry)
	})
	return err
}

// RotateWebhookSecret makes a new secret the current one. The others go on signing for the
// overlap at most. Secrets that have ended are deleted.
func (s *Store) RotateWebhookSecret(ctx context.Context, tenant int64, name, secret string, overlap time.Duration, audit audit.Act) (Webhook, error) {
	return db.TransactIn(ctx, key, s.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (Webhook, error) {
		w, err := webhookNamed(t.Conn, tenant, name)
		if err == nil {
			err = forebay.ConditionOf(ctx).Check(w.ETag())
		}
		if err != nil {
			return w, err
		}
		now := driver.FromMillis(t.Now)
		end := now.Add(overlap)
		rotated := []WebhookSecret{{Secret: secret}}
		for _, old := range w.Secrets {
			if old.Until == nil || old.Until.After(end) {
				old.Until = &end
			}
			if old.Until.After(now) && old.Secret != secret {
				rotated = append(rotated, old)
			}
		}
		if len(rotated) > forebay.MaxWebhookSecrets {
			return w, forebay.Errorf(forebay.CodeConflict, "%d secrets are valid already; rotate with a shorter overlap, or later", forebay.MaxWebhookSecrets)
		}
		secrets, err := json.Marshal(rotated)
		if err != nil {
			return w, err
		}
		if err := t.Prep("UPDATE webhooks SET secrets = ?, updated_at = ? WHERE tenant = ? AND name = ?").Blob(secrets).Int(t.changedAt(w)).Int(tenant).Text(name).Exec(); err != nil {
			return w, err
		}
		return t.changedWebhook(w, audit)
	})
}
