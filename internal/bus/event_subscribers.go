package bus

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// topicsCounter names the counter that rises with every change of a topic, a subscription or a
// rule.
const topicsCounter = "topics"

// FollowedTenants has the topics of job events that have subscriptions, by tenant.
type FollowedTenants struct {
	version int64 // of all topics, when this was read
	Topics  map[int64]string
	most    int64 // subscriptions of one of them
}

const sqlFollowed = `
SELECT tenant, name, n FROM (
  SELECT t.tenant, t.name, (SELECT count(*) FROM queues s WHERE s.topic = t.no AND s.kind = 'messages') AS n
  FROM queues t WHERE t.is_topic = 1 AND t.kind = 'messages' AND t.name LIKE ?) x
WHERE n > 0`

// MostOps is how many operations one transaction takes. Each may publish a few events. Their
// copies cannot be postponed like those of callers: they are stored with the change.
func (f *FollowedTenants) MostOps() int {
	if f == nil || f.most == 0 {
		return db.MaxBatchOps
	}
	return min(db.MaxBatchOps, max(rules.FullCopies/int(f.most), 1))
}

func (t *topicTx) Followed() (*FollowedTenants, error) {
	if t.followed != nil { // each event asks
		return t.followed, nil
	}
	return t.readFollowedAlone()
}

func (t *topicTx) readFollowedAlone() (f *FollowedTenants, err error) {
	err = t.Alone(func() error {
		f, err = t.readFollowed()
		return err
	})
	return f, err
}

func (t *topicTx) readFollowed() (*FollowedTenants, error) {
	f := &FollowedTenants{Topics: map[int64]string{}}
	if t.counter != nil {
		f.version = *t.counter
	} else if _, err := t.Prep("SELECT value FROM counters WHERE name = ?").Text(topicsCounter).One(func(r driver.Row) { f.version = r.Int(0) }); err != nil {
		return nil, err
	}
	if known := t.W.followed; known != nil && known.version == f.version {
		t.followed = known
		return known, nil
	}
	err := t.Prep(sqlFollowed).Text("%/" + forebay.TopicJobEvents).Each(func(r driver.Row) error {
		if name := r.Text(1); entity.NameOf(name) == forebay.TopicJobEvents {
			f.Topics[r.Int(0)], f.most = name, max(f.most, r.Int(2))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.followed = f
	t.After = append(t.After, func() { t.W.followed = f })
	return f, nil
}

// forget discards what the transaction has read of topics, because it has changed one.
func (t *topicTx) forget() {
	t.byName, t.followed, t.counter = nil, nil, nil
	t.forwarding.targets, t.forwarding.held = nil, nil
}
