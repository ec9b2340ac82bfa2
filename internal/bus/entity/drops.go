package entity

import (
	"slices"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/schema"
)

// Drops are the entities that a transaction drops. They are written together, once its operations
// have used them.
type Drops struct {
	Numbers []int64     // of them, with the subscriptions of those that are topics
	Topics  []int64     // those that are dropped, or lose a subscription
	Acts    []audit.Act // of those who drop them

	withRules []int64 // those that are subscriptions
	has       map[int64]bool
}

// Has reports whether an entity is to be dropped, by itself or with its topic. d may be nil.
func (d *Drops) Has(no int64) bool { return d != nil && d.has[no] }

// Add has an entity dropped, with these subscriptions if it is a topic.
func (d *Drops) Add(q Queue, subscriptions []int64, act audit.Act) {
	if d.has == nil {
		d.has = map[int64]bool{}
	}
	d.Acts = append(d.Acts, act)
	switch {
	case q.IsTopic:
		d.Topics = append(d.Topics, q.No)
	case q.Topic != 0:
		d.Topics = append(d.Topics, q.Topic)
	}
	for _, no := range append(subscriptions, q.No) {
		if !d.has[no] {
			d.has[no], d.Numbers = true, append(d.Numbers, no)
			if no != q.No || q.Topic != 0 {
				d.withRules = append(d.withRules, no)
			}
		}
	}
}

var (
	sqlDropRules = driver.BatchForm("DELETE FROM rules WHERE queue = ?", "DELETE FROM rules r USING %s WHERE r.queue = ANY (ARRAY[p1])")
	sqlDrop      = driver.BatchForm(`
UPDATE queues SET kind = 'deleting', name = '/deleting/' || CAST(no AS TEXT), topic = NULL, delete_at = NULL, due_at = ? WHERE no = ? AND kind = 'messages'`, `
UPDATE queues q SET kind = 'deleting', name = '/deleting/' || CAST(q.no AS TEXT), topic = NULL, delete_at = NULL, due_at = p1 FROM %s
WHERE q.no = ANY (ARRAY[p2]) AND q.kind = 'messages'`)
	// SQLSetVersion sets the version of a topic.
	SQLSetVersion = driver.BatchForm("UPDATE queues SET version = ? WHERE no = ? AND is_topic = 1",
		"UPDATE queues q SET version = p1 FROM %s WHERE q.no = ANY (ARRAY[p2]) AND q.is_topic = 1")
)

// Write makes the entities unknown. Their messages are to be purged, which is due at once.
func (d *Drops) Write(c driver.Conn, now int64) error {
	slices.Sort(d.Topics)
	d.Topics = slices.Compact(d.Topics)
	for _, no := range d.withRules {
		if err := c.Prep(sqlDropRules).Int(no).Exec(); err != nil {
			return err
		}
	}
	for _, no := range d.Numbers {
		if err := c.Prep(sqlDrop).Int(now).Int(no).Exec(); err != nil {
			return err
		}
	}
	return c.Prep(schema.SQLCount).Text("queue").Int(slices.Max(d.Numbers) + 1).Exec() // no number is given again
}

// PrefetchDrop is what a transaction asks of an entity that it is to drop.
func PrefetchDrop(q Queue) []driver.Prefetch {
	asks := []driver.Prefetch{Prefetch(q.No)}
	if q.IsTopic {
		asks = append(asks, PrefetchNumbersOf(q.No))
	}
	return asks
}

const sqlNumbersOf = "SELECT no FROM queues WHERE topic = ? AND kind = 'messages'"

// PrefetchNumbersOf is what [NumbersOf] asks.
func PrefetchNumbersOf(topic int64) driver.Prefetch {
	q := driver.NewPrefetch(sqlNumbersOf, driver.RowName{Of: "subscriptions", No: topic}).Int(topic)
	q.Shared = true
	return q
}

// NumbersOf returns the numbers of a topic's subscriptions.
func NumbersOf(c driver.Conn, topic int64) (numbers []int64, err error) {
	err = c.Ask(PrefetchNumbersOf(topic)).Each(func(r driver.Row) error {
		numbers = append(numbers, r.Int(0))
		return nil
	})
	return numbers, err
}
