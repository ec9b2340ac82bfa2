package entity

import (
	"slices"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

const columns = `
SELECT no, tenant, name, lock, max_deliveries, created_at, default_ttl, dead_letter_expired, duplicate_window, requires_session,
  forward_to, forward_dead_letters_to, idle, is_topic, topic, version, dead_letter_filter_errors,
  (SELECT t.idle FROM queues t WHERE t.no = queues.topic),
  CASE WHEN is_topic = 1 THEN (SELECT 1 FROM messages m WHERE m.subqueue = queues.no * 4 AND m.flow = 2 LIMIT 1) END,
  status, max_message, user_metadata, attributes, coalesce(updated_at, created_at), accessed_at
FROM queues WHERE kind = 'messages' `

// Statements that transactions fetch ahead. The rows that they find are read by [Read].
const (
	SQLNumbered      = columns + "AND no = ?"
	SQLNamed         = columns + "AND name = ?"
	SQLSubscriptions = columns + "AND topic = ? ORDER BY name"
	// SQLTargets finds the queue of that name and all that a message may be forwarded to from there.
	SQLTargets = columns + `AND no = ANY (ARRAY(WITH RECURSIVE reached (no, hops) AS (
  SELECT q.no, 1 FROM queues q WHERE q.kind = 'messages' AND q.name = ?
  UNION SELECT n.no, n.hops FROM reached r JOIN queues q ON q.no = r.no JOIN LATERAL (
    SELECT f.no, r.hops + 1 AS hops FROM queues f WHERE f.kind = 'messages' AND f.name = ANY (ARRAY[q.forward_to, q.forward_dead_letters_to])
    UNION ALL SELECT s.no, r.hops FROM queues s WHERE s.topic = q.no AND s.kind = 'messages'
      AND (s.forward_to IS NOT NULL OR s.forward_dead_letters_to IS NOT NULL)) n ON n.hops <= 4)
SELECT reached.no FROM reached))`
)

// Read reads a row.
func Read(r driver.Row) Queue {
	return Queue{No: r.Int(0), Tenant: r.Int(1), Name: r.Text(2), Lock: driver.FromMillisDuration(r.Int(3)), MaxDeliveries: int(r.Int(4)),
		CreatedAt: driver.FromMillis(r.Int(5)), DefaultTTL: driver.FromMillisDuration(r.Int(6)), DeadLetterExpired: r.Int(7) != 0,
		DuplicateWindow: driver.FromMillisDuration(r.Int(8)), RequiresSession: r.Int(9) != 0,
		ForwardTo: r.Text(10), ForwardDeadLettersTo: r.Text(11), Idle: driver.FromMillisDuration(r.Int(12)),
		IsTopic: r.Int(13) != 0, Topic: r.Int(14), Version: r.Int(15), DeadLetterFilterErrors: r.Int(16) != 0,
		TopicIdle: driver.FromMillisDuration(r.Int(17)), CopiesPending: r.Int(18) != 0, State: readState(r)}
}

func readState(r driver.Row) State {
	s := State{Status: statuses[r.Int(19)&3], MaxMessage: r.Int(20), UserMetadata: r.Text(21), Attributes: r.Text(22), UpdatedAt: driver.FromMillis(r.Int(23))}
	if at := r.Int(24); at > 0 {
		s.AccessedAt = driver.FromMillis(at)
	}
	return s
}

// statuses has the statuses by their numbers in the column status.
var statuses = []forebay.EntityStatus{forebay.EntityActive, forebay.EntitySendDisabled, forebay.EntityReceiveDisabled, forebay.EntityDisabled}

// ReceiveDisabled is the lowest number of a status with which nobody may receive.
const ReceiveDisabled = 2

func statusNumber(s forebay.EntityStatus) int64 { return int64(max(0, slices.Index(statuses, s))) }

// Prefetch is what [Numbered] asks.
func Prefetch(no int64) driver.Prefetch {
	q := driver.NewPrefetch(SQLNumbered, driver.RowName{Of: "queues", No: no}).Int(no)
	q.Shared = true
	return q
}

// Numbered returns the queue, topic or subscription with that number, if there is one.
func Numbered(c driver.Conn, no int64) (q Queue, found bool, err error) {
	return one(c.Prep(SQLNumbered).Int(no))
}

// Named returns the queue, topic or subscription with that stored name, if there is one.
func Named(c driver.Conn, name string) (q Queue, found bool, err error) {
	return one(c.Prep(SQLNamed).Text(name))
}

const SQLTopic = columns + "AND no = ? AND is_topic = 1"

// Topic returns the topic with that number, if there is one.
func Topic(c driver.Conn, no int64) (q Queue, found bool, err error) {
	return one(c.Prep(SQLTopic).Int(no))
}

func one(s driver.Statement) (q Queue, found bool, err error) {
	found, err = s.One(func(r driver.Row) { q = Read(r) })
	return q, found, err
}

// list returns the rows that a statement finds.
func list(s driver.Statement) (found []Queue, err error) {
	err = s.Each(func(r driver.Row) error {
		found = append(found, Read(r))
		return nil
	})
	return found, err
}

// Subscriptions returns a topic's subscriptions by name.
func Subscriptions(c driver.Conn, topic int64) ([]Queue, error) {
	return list(c.Prep(SQLSubscriptions).Int(topic))
}

// Targets returns the queue of that stored name and all that a message may be forwarded to from
// there. It is for PostgreSQL.
func Targets(c driver.Conn, name string) ([]Queue, error) {
	return list(c.Prep(SQLTargets).Text(name))
}

// SQLFolded finds the entity of exactly a name, and the first by name of those that differ from
// it in case alone.
// Many at once need a form of their own. With arrays in the inner query, the index would not give
// its order. All that are equal but for case would be sorted. Both parts look up queues_folded.
var SQLFolded = driver.PrefetchForm(columns+"AND tenant = ?1 AND name = ?2 UNION ALL SELECT * FROM ("+
	columns+"AND tenant = ?1 AND lower(name) = ?3 ORDER BY name LIMIT 1 + 0) bounded_folded",
	"SELECT x.p1, x.p2, x.p3, q.* FROM %s, LATERAL ("+columns+"AND tenant = x.p1 AND lower(name) = x.p3 AND name = x.p2 UNION ALL SELECT * FROM ("+
		columns+"AND tenant = x.p1 AND lower(name) = x.p3 ORDER BY name LIMIT 1 + 0) bounded_folded) AS q")

// PrefetchFolded is what [Folded] asks. An operation that changes entities, and whatever drops
// one, has all that asks by name asked again.
func PrefetchFolded(tenant int64, name string) driver.Prefetch {
	q := driver.NewPrefetch(SQLFolded, driver.RowName{Of: "folded", No: tenant, ID: name}).Int(tenant).Text(name).Text(Fold(name))
	q.Shared = true
	return q
}

// Folded returns a tenant's queue, topic or subscription by its stored name in any case. An exact
// name comes before others, and of these the first by name.
func Folded(c driver.Conn, tenant int64, name string) (q Queue, found bool, err error) {
	err = c.Prep(SQLFolded).Int(tenant).Text(name).Text(Fold(name)).Each(func(r driver.Row) error {
		if one := Read(r); !found || one.Name == name {
			q, found = one, true
		}
		return nil
	})
	return q, found, err
}
