package store

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/forebayhq/forebay"
)

// setLimits replaces a tenant's limits.
func setLimits(t *tx, tenant int64, limits forebay.TenantLimits) error {
	text, err := json.Marshal(limits)
	if err != nil {
		return err
	}
	return t.prep("UPDATE tenants SET limits = ? WHERE no = ?").text(string(text)).int(tenant).exec()
}

// ConfigureLimits takes in what the configuration says of tenants' limits, by the rule of
// ConfigureBudgets: the latest change counts, whoever made it.
func (s *TenantStore) ConfigureLimits(ctx context.Context, wanted map[int64]forebay.TenantLimits) error {
	_, err := transactIn(ctx, jobsKey, s.writer, op{stage: stageChange}, func(t *jobsTx) (struct{}, error) {
		before := map[int64]string{}
		err := t.prep("SELECT no, configured_limits FROM tenants WHERE configured_limits IS NOT NULL").each(func(r row) error {
			before[r.int(0)] = r.text(1)
			return nil
		})
		if err != nil {
			return struct{}{}, err
		}
		for tenant, limits := range wanted {
			text, err := json.Marshal(limits)
			if err != nil {
				return struct{}{}, err
			}
			if known, ok := before[tenant]; !ok || known != string(text) {
				if err := t.prep("UPDATE tenants SET limits = ?1, configured_limits = ?1 WHERE no = ?2").text(string(text)).int(tenant).exec(); err != nil {
					return struct{}{}, err
				}
			}
			delete(before, tenant)
		}
		for tenant := range before {
			if err := t.prep("UPDATE tenants SET limits = NULL, configured_limits = NULL WHERE no = ?").int(tenant).exec(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// TenantLimits returns what is set of a tenant's limits.
func (s *TenantStore) TenantLimits(ctx context.Context, tenant int64) (limits forebay.TenantLimits, err error) {
	err = s.read(ctx, func(c conn) error {
		limits = forebay.TenantLimits{}
		var text string
		_, err := c.prep("SELECT limits FROM tenants WHERE no = ?").int(tenant).one(func(r row) { text = r.text(0) })
		if err != nil || text == "" {
			return err
		}
		return json.Unmarshal([]byte(text), &limits)
	})
	return limits, err
}

// What is counted by one statement: ?1 is the tenant's number, ?2 the time, ?3 the most that is counted, so
// that more costs no more.
var sqlUsed = map[forebay.LimitName][]string{
	// The lines of the tenant in the subqueues for jobs that are not set aside.
	forebay.LimitWaitingJobs: {sqlBounded(`SELECT m.seq FROM queues q JOIN messages m
		ON m.lane IN (q.no * 4, q.no * 4 + 1) AND m.rank >= ?1 * 1024 AND m.rank < (?1 + 1) * 1024 WHERE q.kind = 'jobs' AND ?2 > 0`)},
	forebay.LimitWaitingMessages: {sqlBounded(`SELECT b.seq FROM queues q JOIN bodies b
		ON b.lane IN (q.no * 4, q.no * 4 + 2) WHERE q.tenant = ?1 AND ?2 > 0`)},
	forebay.LimitScheduled: {
		sqlBounded(`SELECT m.seq FROM queues q JOIN messages m
			ON m.lane IN (q.no * 4, q.no * 4 + 1) AND m.rank >= ?1 * 1024 AND m.rank < (?1 + 1) * 1024 AND m.visible > ?2
			JOIN jobs j ON j.seq = m.seq WHERE q.kind = 'jobs' AND j.scheduled_at > ?2`),
		sqlBounded(`SELECT m.seq FROM queues q JOIN messages m ON m.lane IN (q.no * 4) AND m.rank = 1 WHERE q.tenant = ?1 AND ?2 > 0`),
	},
	forebay.LimitSessions:      {sqlBounded("SELECT s.no FROM queues q JOIN sessions s ON s.queue = q.no WHERE q.tenant = ?1 AND ?2 > 0")},
	forebay.LimitDocuments:     {sqlBounded("SELECT d.no FROM documents d WHERE d.tenant = ?1 AND ?2 > 0")},
	forebay.LimitMessageQueues: {sqlBounded("SELECT q.no FROM queues q WHERE q.tenant = ?1 AND ?2 > 0 AND q.kind = 'messages' AND q.is_topic = 0 AND q.topic IS NULL")},
	forebay.LimitTopics:        {sqlBounded("SELECT q.no FROM queues q WHERE q.tenant = ?1 AND ?2 > 0 AND q.kind = 'messages' AND q.is_topic = 1")},
	forebay.LimitSubscriptions: {sqlBounded("SELECT q.no FROM queues q WHERE q.tenant = ?1 AND ?2 > 0 AND q.kind = 'messages' AND q.topic IS NOT NULL")},
	forebay.LimitRules:         {sqlBounded("SELECT q.no FROM queues q JOIN rules r ON r.queue = q.no WHERE q.tenant = ?1 AND ?2 > 0 AND q.kind = 'messages'")},
	forebay.LimitWebhooks:      {sqlBounded("SELECT w.queue FROM webhooks w WHERE w.tenant = ?1 AND ?2 > 0")},
	forebay.LimitOrchestrations: {sqlBounded(
		"SELECT o.no FROM orchestrations o WHERE o.tenant = ?1 AND ?2 > 0 AND o.status IS NULL")},
	forebay.LimitOrchestrationEvents: {sqlBounded(
		"SELECT o.no FROM orchestrations o JOIN orchestration_inbox i ON i.instance = o.no WHERE o.tenant = ?1 AND ?2 > 0 AND o.status IS NULL")},
	forebay.LimitKeys: {sqlBounded("SELECT t.no FROM tenants t JOIN api_keys k ON k.tenant = t.name WHERE t.no = ?1 AND ?2 > 0 AND k.revoked_at IS NULL")},
}

func sqlBounded(of string) string { return "SELECT count(*) FROM (" + of + " LIMIT ?3 + 0) x" }

// LimitUsed counts what a tenant has of what a limit is about, up to most of each kind of thing. Of stored bytes it tells
// all.
func (s *TenantStore) LimitUsed(ctx context.Context, tenant int64, name forebay.LimitName, most int64) (used int64, err error) {
	if name == forebay.LimitStoredBytes {
		return s.storedBytes(ctx, tenant)
	}
	for _, sql := range sqlUsed[name] {
		var n int64
		err := s.read(ctx, func(c conn) error {
			_, err := c.prep(sql).int(tenant).int(c.now()).int(most).one(func(r row) { n = r.int(0) })
			return err
		})
		if err != nil {
			return 0, err
		}
		used += n
	}
	return used, nil
}

// byteSums are what stored bytes are in but for messages, each read in pages along a key: ?1 is the tenant, ?2 the key after
// which a page begins, ?3 how many rows it has.
var byteSums = []string{
	sqlSum(`SELECT j.seq AS no,
		j.input_size + coalesce(length(j.metadata), 0) + coalesce((SELECT o.result_size FROM outcomes o WHERE o.seq = j.seq), 0) AS size
		FROM jobs j WHERE j.tenant = ?1 AND j.seq > ?2 ORDER BY j.seq`),
	// Chunks are the text again; a vector has 32 bits for each dimension and its code has one.
	sqlSum(`SELECT d.no,
		coalesce((SELECT CAST(sum(r.size + r.text_bytes + coalesce(length(r.metadata), 0) + coalesce(length(r.entities), 0)
			+ r.embedded * (SELECT coalesce(max(x.dimensions), 0) * 33 / 8 FROM document_indexes x WHERE x.tenant = ?1)) AS BIGINT)
			FROM document_revisions r WHERE r.document = d.no), 0) AS size
		FROM documents d WHERE d.tenant = ?1 AND d.no > ?2 ORDER BY d.no`),
	sqlSum(`SELECT o.no, coalesce(length(o.failure), 0) + coalesce(length(o.custom), 0) + ` +
		sqlPayloadSize("o.input", "o.input_blob") + " + " + sqlPayloadSize("o.output", "o.output_blob") + " + " +
		sqlPayloadSizes("h.events", "h.events_blob", "orchestration_history h") + " + " +
		sqlPayloadSizes("i.event", "i.event_blob", "orchestration_inbox i") + " + " +
		sqlPayloadSizes("a.event", "a.event_blob", "orchestration_activities a") + ` AS size
		FROM orchestrations o WHERE o.tenant = ?1 AND o.no > ?2 ORDER BY o.no`),
}

func sqlSum(of string) string {
	return "SELECT count(*), coalesce(max(no), 0), CAST(coalesce(sum(size), 0) AS BIGINT) FROM (" + of + " LIMIT ?3 + 0) x"
}

// sqlPayloadSize is the size of a Payload: of what is in the row, or the number that the blob's key ends in.
func sqlPayloadSize(bytes, blob string) string {
	return "coalesce(length(" + bytes + "), 0) + CAST('0' || coalesce(substr(" + blob + ", length(rtrim(" + blob + ", '0123456789')) + 1, 15), '') AS BIGINT)"
}

// sqlPayloadSizes is the size of all payloads that an instance has in a table.
func sqlPayloadSizes(bytes, blob, from string) string {
	alias := from[strings.IndexByte(from, ' ')+1:]
	return "coalesce((SELECT CAST(sum(" + sqlPayloadSize(bytes, blob) + ") AS BIGINT) FROM " + from + " WHERE " + alias + ".instance = o.no), 0)"
}

// Of messages a read adds up those of some queues, and of a queue that has more than bytePage those of one subqueue at a time.
const (
	sqlQueueBytes = `SELECT q.no,
  (SELECT count(*) FROM (SELECT b.seq FROM bodies b WHERE b.lane IN (q.no * 4, q.no * 4 + 2) LIMIT ?4 + 0) x),
  (SELECT CAST(coalesce(sum(x.size), 0) AS BIGINT) FROM (SELECT m.size FROM bodies b JOIN messages m ON m.seq = b.seq
    WHERE b.lane IN (q.no * 4, q.no * 4 + 2) LIMIT ?4 + 0) x),
  (SELECT CAST(coalesce(sum(length(s.state)), 0) AS BIGINT) FROM sessions s WHERE s.queue = q.no AND s.state IS NOT NULL)
FROM queues q WHERE q.tenant = ?1 AND q.no > ?2 ORDER BY q.no LIMIT ?3 + 0`
	sqlSubqueueBytes = `SELECT b.seq, (SELECT m.size FROM messages m WHERE m.seq = b.seq) FROM bodies b
WHERE b.lane = ?1 AND b.seq > ?2 ORDER BY b.seq LIMIT ?3 + 0`
)

const (
	// bytePage is how many rows are summed in one read.
	bytePage = 2000
	// queuePage is how many queues' messages are.
	queuePage = 50
)

// storedBytes sums what a tenant's jobs, messages, documents and orchestrations bring and have as results, wherever it is.
func (s *TenantStore) storedBytes(ctx context.Context, tenant int64) (total int64, err error) {
	for _, sql := range byteSums {
		for after, rows := int64(0), int64(bytePage); rows == bytePage; {
			var size int64
			err := s.read(ctx, func(c conn) error {
				_, err := c.prep(sql).int(tenant).int(after).int(bytePage).one(func(r row) { rows, after, size = r.int(0), r.int(1), r.int(2) })
				return err
			})
			if err != nil {
				return 0, err
			}
			total += size
		}
	}
	messages, err := s.messageBytes(ctx, tenant)
	return total + messages, err
}

// messageBytes sums what a tenant's messages and the states of its sessions have. A copy that a topic made counts whole.
func (s *TenantStore) messageBytes(ctx context.Context, tenant int64) (total int64, err error) {
	for after, rows := int64(0), queuePage; rows == queuePage; {
		var size, last int64
		var large []int64
		err := s.read(ctx, func(c conn) error {
			rows, size, last, large = 0, 0, after, nil
			return c.prep(sqlQueueBytes).int(tenant).int(after).int(queuePage).int(bytePage).each(func(r row) error {
				rows, last, size = rows+1, r.int(0), size+r.int(3)
				if r.int(1) == bytePage {
					large = append(large, r.int(0))
				} else {
					size += r.int(2)
				}
				return nil
			})
		})
		for _, q := range large {
			for _, kind := range []int64{0, 2} {
				if err == nil {
					size, err = s.addSubqueueBytes(ctx, q*subqueueKinds+kind, size)
				}
			}
		}
		if err != nil {
			return 0, err
		}
		after, total = last, total+size
	}
	return total, nil
}

// addLaneBytes adds what a subqueue's messages have.
func (s *TenantStore) addSubqueueBytes(ctx context.Context, subqueue, total int64) (int64, error) {
	for after, rows := int64(0), bytePage; rows == bytePage; {
		var size, last int64
		err := s.read(ctx, func(c conn) error {
			rows, size, last = 0, 0, after
			return c.prep(sqlSubqueueBytes).int(subqueue).int(after).int(bytePage).each(func(r row) error {
				rows, last, size = rows+1, r.int(0), size+r.int(1)
				return nil
			})
		})
		if err != nil {
			return 0, err
		}
		after, total = last, total+size
	}
	return total, nil
}

// NewSessions returns how many of these sessions a queue does not have.
func (s *TenantStore) NewSessions(ctx context.Context, q MessageQueue, ids map[string]bool) (fresh int64, err error) {
	err = s.read(ctx, func(c conn) error {
		fresh = int64(len(ids))
		for id := range ids {
			found, err := c.prep("SELECT no FROM sessions WHERE queue = ? AND id = ?").int(q.No).text(id).one(func(row) {})
			if err != nil {
				return err
			}
			if found {
				fresh--
			}
		}
		return nil
	})
	return fresh, err
}

// HasRule reports whether a subscription has a rule of that name.
func (s *TenantStore) HasRule(ctx context.Context, sub MessageQueue, name string) (found bool, err error) {
	err = s.read(ctx, func(c conn) error {
		found, err = c.prep("SELECT queue FROM rules WHERE queue = ? AND name = ?").int(sub.No).text(name).one(func(row) {})
		return err
	})
	return found, err
}

// SetTenant sets what settings says of a tenant, with its entries for the audit log. It takes effect at once.
func (s *TenantStore) SetTenant(ctx context.Context, tenant int64, settings forebay.TenantSettings, entries ...Audit) error {
	_, err := transactIn(ctx, admissionKey, s.writer, op{stage: stageChange}, func(t *admissionTx) (struct{}, error) {
		if settings.Budget != nil {
			if err := t.setBudget(tenant, "", *settings.Budget, entries[0].Actor, nil); err != nil {
				return struct{}{}, err
			}
		}
		if settings.Concurrency != nil {
			if err := t.setConcurrency(tenant, int64(*settings.Concurrency)); err != nil {
				return struct{}{}, err
			}
		}
		if settings.Limits != nil {
			if err := setLimits(t.tx, tenant, *settings.Limits); err != nil {
				return struct{}{}, err
			}
		}
		for _, entry := range entries {
			if err := auditIn(t.tx, entry); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// TenantRow is a tenant.
type TenantRow struct {
	No          int64
	Name        string
	Paused      bool  // none of its jobs is delivered
	Concurrency int64 // how many of its jobs may run at once; 0: any number
}

// Tenants returns the tenant of a name, if there is one, or all ("") by name.
func (s *TenantStore) Tenants(ctx context.Context, name string) (tenants []TenantRow, err error) {
	err = s.read(ctx, func(c conn) error {
		tenants = nil
		return c.prep("SELECT no, name, paused, concurrency FROM tenants WHERE name = ?1 OR ?1 = '' ORDER BY name LIMIT ?2 + 0").text(name).int(maxBudgetRows).each(func(r row) error {
			tenants = append(tenants, TenantRow{r.int(0), r.text(1), r.int(2) != 0, r.int(3)})
			return nil
		})
	})
	return tenants, err
}
