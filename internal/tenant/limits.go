package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// setLimits replaces a tenant's limits.
func setLimits(t *db.Tx, tenant int64, limits forebay.TenantLimits) error {
	text, err := json.Marshal(limits)
	if err != nil {
		return err
	}
	return t.Prep("UPDATE tenants SET limits = ? WHERE no = ?").Text(string(text)).Int(tenant).Exec()
}

// ConfigureLimits takes in what the configuration says of tenants' limits, by the rule of
// ConfigureBudgets: the latest change counts, whoever made it.
func (s *Store) ConfigureLimits(ctx context.Context, wanted map[int64]forebay.TenantLimits) error {
	_, err := db.Transact(ctx, s.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
		before := map[int64]string{}
		err := t.Prep("SELECT no, configured_limits FROM tenants WHERE configured_limits IS NOT NULL").Each(func(r driver.Row) error {
			before[r.Int(0)] = r.Text(1)
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
				if err := t.Prep("UPDATE tenants SET limits = ?1, configured_limits = ?1 WHERE no = ?2").Text(string(text)).Int(tenant).Exec(); err != nil {
					return struct{}{}, err
				}
			}
			delete(before, tenant)
		}
		for tenant := range before {
			if err := t.Prep("UPDATE tenants SET limits = NULL, configured_limits = NULL WHERE no = ?").Int(tenant).Exec(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// TenantLimits returns what is set of a tenant's limits.
func (s *Store) TenantLimits(ctx context.Context, tenant int64) (limits forebay.TenantLimits, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		limits = forebay.TenantLimits{}
		var text string
		_, err := c.Prep("SELECT limits FROM tenants WHERE no = ?").Int(tenant).One(func(r driver.Row) { text = r.Text(0) })
		if err != nil || text == "" {
			return err
		}
		return json.Unmarshal([]byte(text), &limits)
	})
	return limits, err
}

// What is counted by one statement. ?1 is the tenant's number, ?2 the time. ?3 is the most that
// is counted, so that more costs no more.
var sqlUsed = map[forebay.LimitName][]string{
	// The lines of the tenant in the subqueues for jobs that are not set aside.
	forebay.LimitWaitingJobs: {sqlBounded(`SELECT m.seq FROM queues q JOIN messages m
		ON m.subqueue IN (q.no * 4, q.no * 4 + 1) AND m.flow >= ?1 * 1024 AND m.flow < (?1 + 1) * 1024 WHERE q.kind = 'jobs' AND ?2 > 0`)},
	forebay.LimitWaitingMessages: {sqlBounded(`SELECT b.seq FROM queues q JOIN bodies b
		ON b.subqueue IN (q.no * 4, q.no * 4 + 2) WHERE q.tenant = ?1 AND ?2 > 0`)},
	forebay.LimitScheduled: {
		sqlBounded(`SELECT m.seq FROM queues q JOIN messages m
			ON m.subqueue IN (q.no * 4, q.no * 4 + 1) AND m.flow >= ?1 * 1024 AND m.flow < (?1 + 1) * 1024 AND m.visible_at > ?2
			JOIN jobs j ON j.seq = m.seq WHERE q.kind = 'jobs' AND j.scheduled_at > ?2`),
		sqlBounded(`SELECT m.seq FROM queues q JOIN messages m ON m.subqueue IN (q.no * 4) AND m.flow = 1 WHERE q.tenant = ?1 AND ?2 > 0`),
	},
	forebay.LimitSessions:      {sqlBounded("SELECT s.no FROM queues q JOIN sessions s ON s.queue = q.no WHERE q.tenant = ?1 AND ?2 > 0")},
	forebay.LimitDocuments:     {sqlBounded("SELECT d.tenant FROM documents d WHERE d.tenant = ?1 AND ?2 > 0")},
	forebay.LimitFiles:         {sqlBounded("SELECT f.no FROM files f WHERE f.tenant = ?1 AND ?2 > 0 AND f.deleted = 0")},
	forebay.LimitBatches:       {sqlBounded("SELECT b.no FROM batches b WHERE b.tenant = ?1 AND ?2 > 0 AND b.ended_at IS NULL")},
	forebay.LimitMessageQueues: {sqlBounded("SELECT q.no FROM queues q WHERE q.tenant = ?1 AND ?2 > 0 AND q.kind = 'messages' AND q.is_topic = 0 AND q.topic IS NULL")},
	forebay.LimitTopics:        {sqlBounded("SELECT q.no FROM queues q WHERE q.tenant = ?1 AND ?2 > 0 AND q.kind = 'messages' AND q.is_topic = 1")},
	forebay.LimitSubscriptions: {sqlBounded("SELECT q.no FROM queues q WHERE q.tenant = ?1 AND ?2 > 0 AND q.kind = 'messages' AND q.topic IS NOT NULL")},
	forebay.LimitRules:         {sqlBounded("SELECT q.no FROM queues q JOIN rules r ON r.queue = q.no WHERE q.tenant = ?1 AND ?2 > 0 AND q.kind = 'messages'")},
	forebay.LimitWebhooks:      {sqlBounded("SELECT w.queue FROM webhooks w WHERE w.tenant = ?1 AND ?2 > 0")},
	forebay.LimitOrchestrations: {sqlBounded(
		"SELECT o.tenant FROM orchestrations o WHERE o.tenant = ?1 AND ?2 > 0 AND o.status IS NULL")},
	forebay.LimitOrchestrationEvents: {sqlBounded(
		"SELECT o.no FROM orchestrations o JOIN orchestration_inbox i ON i.instance = o.no WHERE o.tenant = ?1 AND ?2 > 0 AND o.status IS NULL")},
	forebay.LimitKeys: {sqlBounded("SELECT t.no FROM tenants t JOIN api_keys k ON k.tenant = t.name WHERE t.no = ?1 AND ?2 > 0 AND k.revoked_at IS NULL")},
}

func sqlBounded(of string) string { return "SELECT count(*) FROM (" + of + " LIMIT ?3 + 0) x" }

// LimitUsed counts what a tenant has of what a limit is about, up to most of each kind of
// thing. Of stored bytes it tells all.
func (s *Store) LimitUsed(ctx context.Context, tenant int64, name forebay.LimitName, most int64) (used int64, err error) {
	if name == forebay.LimitStoredBytes {
		return s.storedBytes(ctx, tenant)
	}
	for _, sql := range sqlUsed[name] {
		var n int64
		err := s.Read(ctx, func(c driver.Conn) error {
			_, err := c.Prep(sql).Int(tenant).Int(c.Now()).Int(most).One(func(r driver.Row) { n = r.Int(0) })
			return err
		})
		if err != nil {
			return 0, err
		}
		used += n
	}
	return used, nil
}

// byteSums add up stored bytes, except those of messages, in pages along a key. ?1 is the tenant.
// ?2 is the key after which a page begins, ?3 its number of rows.
var byteSums = []string{
	sqlSum(`SELECT owned.seq AS no,
		owned.input_size + coalesce(length(owned.metadata), 0) + coalesce((SELECT o.result_size FROM outcomes o WHERE o.seq = owned.seq), 0) AS size
		FROM jobs owned WHERE owned.tenant = ?1 AND owned.seq > ?2 ORDER BY owned.seq`),
	// Chunks are the text again; a vector has 32 bits for each dimension and its code has one.
	sqlSum(`SELECT owned.no,
		coalesce((SELECT CAST(sum(r.size + r.text_bytes + coalesce(length(r.metadata), 0) + coalesce(length(r.entities), 0)
			+ r.embedded * (SELECT coalesce(max(x.dimensions), 0) * 33 / 8 FROM document_indexes x WHERE x.tenant = ?1)) AS BIGINT)
			FROM document_revisions r WHERE r.document = owned.no), 0) AS size
		FROM documents owned WHERE owned.tenant = ?1 AND owned.no > ?2 ORDER BY owned.no`),
	sqlSum("SELECT owned.no, owned.size + 0 AS size FROM files owned WHERE owned.tenant = ?1 AND owned.no > ?2 ORDER BY owned.no"),
	sqlSum(`SELECT owned.no, owned.request_size + owned.object_size + owned.events_size AS size
		FROM responses owned WHERE owned.tenant = ?1 AND owned.no > ?2 ORDER BY owned.no`),
	sqlSum(`SELECT owned.no, coalesce(length(owned.failure), 0) + coalesce(length(owned.custom), 0) + ` +
		sqlPayloadSize("owned.input", "owned.input_blob") + " + " + sqlPayloadSize("owned.output", "owned.output_blob") + " + " +
		sqlPayloadSizes("h.events", "h.events_blob", "orchestration_history h") + " + " +
		sqlPayloadSizes("i.event", "i.event_blob", "orchestration_inbox i") + " + " +
		sqlPayloadSizes("a.event", "a.event_blob", "orchestration_activities a") + ` AS size
		FROM orchestrations owned WHERE owned.tenant = ?1 AND owned.no > ?2 ORDER BY owned.no`),
}

func sqlSum(of string) string {
	return "SELECT count(*), coalesce(max(no), 0), CAST(coalesce(sum(size), 0) AS BIGINT) FROM (" + of + " LIMIT ?3 + 0) x"
}

// sqlPayloadSize is the size of a Payload: of what is in the row, or the number that the blob's
// key ends in.
func sqlPayloadSize(bytes, blob string) string {
	return "coalesce(length(" + bytes + "), 0) + CAST('0' || coalesce(substr(" + blob + ", length(rtrim(" + blob + ", '0123456789')) + 1, 15), '') AS BIGINT)"
}

// sqlPayloadSizes is the size of all payloads that an instance has in a table.
func sqlPayloadSizes(bytes, blob, from string) string {
	alias := from[strings.IndexByte(from, ' ')+1:]
	return "coalesce((SELECT CAST(sum(" + sqlPayloadSize(bytes, blob) + ") AS BIGINT) FROM " + from + " WHERE " + alias + ".instance = owned.no), 0)"
}

// A read of messages adds up those of some queues. If a queue has more than bytePage, it takes
// one subqueue at a time.
const (
	sqlQueueBytes = `SELECT q.no,
  (SELECT count(*) FROM (SELECT b.seq FROM bodies b WHERE b.subqueue IN (q.no * 4, q.no * 4 + 2) LIMIT ?4 + 0) x),
  (SELECT CAST(coalesce(sum(x.size), 0) AS BIGINT) FROM (SELECT m.size FROM bodies b JOIN messages m ON m.seq = b.seq
    WHERE b.subqueue IN (q.no * 4, q.no * 4 + 2) LIMIT ?4 + 0) x),
  (SELECT CAST(coalesce(sum(length(s.state)), 0) AS BIGINT) FROM sessions s WHERE s.queue = q.no AND s.state IS NOT NULL)
FROM queues q WHERE q.tenant = ?1 AND q.no > ?2 ORDER BY q.no LIMIT ?3 + 0`
	sqlSubqueueBytes = `SELECT b.seq, (SELECT m.size FROM messages m WHERE m.seq = b.seq) FROM bodies b
WHERE b.subqueue = ?1 AND b.seq > ?2 ORDER BY b.seq LIMIT ?3 + 0`
)

const (
	// bytePage is how many rows are summed in one read.
	bytePage = 2000
	// queuePage is how many queues' messages are.
	queuePage = 50
)

// storedBytes sums what a tenant's jobs, messages, documents and orchestrations bring and have
// as results, wherever it is.
func (s *Store) storedBytes(ctx context.Context, tenant int64) (total int64, err error) {
	for _, sql := range byteSums {
		for after, rows := int64(0), int64(bytePage); rows == bytePage; {
			var size int64
			err := s.Read(ctx, func(c driver.Conn) error {
				_, err := c.Prep(sql).Int(tenant).Int(after).Int(bytePage).One(func(r driver.Row) { rows, after, size = r.Int(0), r.Int(1), r.Int(2) })
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

// messageBytes sums what a tenant's messages and the states of its sessions have. A copy that a
// topic made counts whole.
func (s *Store) messageBytes(ctx context.Context, tenant int64) (total int64, err error) {
	for after, rows := int64(0), queuePage; rows == queuePage; {
		var size, last int64
		var large []int64
		err := s.Read(ctx, func(c driver.Conn) error {
			rows, size, last, large = 0, 0, after, nil
			return c.Prep(sqlQueueBytes).Int(tenant).Int(after).Int(queuePage).Int(bytePage).Each(func(r driver.Row) error {
				rows, last, size = rows+1, r.Int(0), size+r.Int(3)
				if r.Int(1) == bytePage {
					large = append(large, r.Int(0))
				} else {
					size += r.Int(2)
				}
				return nil
			})
		})
		for _, q := range large {
			for _, kind := range []int64{0, 2} {
				if err == nil {
					size, err = s.addSubqueueBytes(ctx, q*queue.SubqueueKinds+kind, size)
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
func (s *Store) addSubqueueBytes(ctx context.Context, subqueue, total int64) (int64, error) {
	for after, rows := int64(0), bytePage; rows == bytePage; {
		var size, last int64
		err := s.Read(ctx, func(c driver.Conn) error {
			rows, size, last = 0, 0, after
			return c.Prep(sqlSubqueueBytes).Int(subqueue).Int(after).Int(bytePage).Each(func(r driver.Row) error {
				rows, last, size = rows+1, r.Int(0), size+r.Int(1)
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

// SetTenant sets what settings says of a tenant, with its entries for the audit log. It takes
// effect at once.
func (s *Store) SetTenant(ctx context.Context, tenant int64, settings forebay.TenantSettings, entries ...audit.Act) error {
	_, err := db.TransactIn(ctx, admission.Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *admission.Tx) (struct{}, error) {
		if condition := forebay.ConditionOf(ctx); !condition.Empty() {
			row, err := tenantNumbered(t.Conn, tenant)
			if err == nil {
				err = condition.Check(row.ETag)
			}
			if err != nil {
				return struct{}{}, err
			}
		}
		if settings.Budget != nil {
			if err := t.SetBudget(tenant, "", *settings.Budget, entries[0].Actor, nil); err != nil {
				return struct{}{}, err
			}
		}
		if settings.Concurrency != nil {
			if err := t.SetConcurrency(tenant, int64(*settings.Concurrency)); err != nil {
				return struct{}{}, err
			}
		}
		if settings.Limits != nil {
			if err := setLimits(t.Tx, tenant, *settings.Limits); err != nil {
				return struct{}{}, err
			}
		}
		for _, entry := range entries {
			if err := audit.Append(t.Tx, entry); err != nil {
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
	Paused      bool   // none of its jobs is delivered
	Concurrency int64  // how many of its jobs may run at once; 0: any number
	ETag        string // entity tag of its budget, its concurrency and its limits
}

const (
	sqlTenants = "SELECT t.no, t.name, t.paused, t.concurrency, t.limits, " + admission.LimitColumns + `
FROM tenants t LEFT JOIN budgets b ON b.tenant = t.no AND b.key_id = '' `
	sqlTenantList     = sqlTenants + "WHERE t.name = ?1 OR ?1 = '' ORDER BY t.name LIMIT ?2 + 0"
	sqlTenantNumbered = sqlTenants + "WHERE t.no = ?"
)

func readTenant(r driver.Row) (TenantRow, error) {
	row := TenantRow{No: r.Int(0), Name: r.Text(1), Paused: r.Int(2) != 0, Concurrency: r.Int(3)}
	var limits forebay.TenantLimits
	if text := r.Text(4); text != "" {
		if err := json.Unmarshal([]byte(text), &limits); err != nil {
			return row, err
		}
	}
	row.ETag = forebay.ETagOf(row.No, row.Concurrency, limits, admission.ReadLimits(r, 5))
	return row, nil
}

// tenantNumbered returns the tenant with that number.
func tenantNumbered(c driver.Conn, no int64) (row TenantRow, err error) {
	var problem error
	found, err := c.Prep(sqlTenantNumbered).Int(no).One(func(r driver.Row) { row, problem = readTenant(r) })
	if err == nil && !found {
		err = forebay.ErrNotFound
	}
	return row, errors.Join(err, problem)
}

// Tenants returns the tenant of a name, if there is one, or all ("") by name.
func (s *Store) Tenants(ctx context.Context, name string) (tenants []TenantRow, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		tenants = nil
		return c.Prep(sqlTenantList).Text(name).Int(admission.MaxBudgetRows).Each(func(r driver.Row) error {
			row, err := readTenant(r)
			tenants = append(tenants, row)
			return err
		})
	})
	return tenants, err
}
