package store

import (
	"github.com/forebayhq/forebay"
)

// topicsCounter is the counter that goes up with every change of a topic, a subscription or a rule.
const topicsCounter = "topics"

// followedTenants is whose job events somebody subscribes to: the name of each tenant's topic.
type followedTenants struct {
	version int64 // of all topics
	topics  map[int64]string
	most    int64 // subscriptions of one of them
}

const sqlFollowed = `
SELECT tenant, name, n FROM (
  SELECT t.tenant, t.name, (SELECT count(*) FROM queues s WHERE s.topic = t.no AND s.kind = 'messages') AS n
  FROM queues t WHERE t.is_topic = 1 AND t.kind = 'messages' AND t.name LIKE ?) x
WHERE n > 0`

// mostOps is how many operations one transaction takes. Each may tell two events or so, and what topics make of those
// cannot be put off as what callers send to them can: it is stored with the change.
func (f *followedTenants) mostOps() int {
	if f == nil || f.most == 0 {
		return maxBatchOps
	}
	return min(maxBatchOps, max(fullCopies/int(f.most), 1))
}

func (t *busTx) followed() (*followedTenants, error) {
	if t.topics.followed != nil {
		return t.topics.followed, nil
	}
	f := &followedTenants{topics: map[int64]string{}}
	if t.counter != nil {
		f.version = *t.counter
	} else if _, err := t.prep("SELECT value FROM counters WHERE name = ?").text(topicsCounter).one(func(r row) { f.version = r.int(0) }); err != nil {
		return nil, err
	}
	if known := t.w.followed; known != nil && known.version == f.version {
		t.topics.followed = known
		return known, nil
	}
	err := t.prep(sqlFollowed).text("%/" + forebay.TopicJobEvents).each(func(r row) error {
		if name := r.text(1); entityOf(name) == forebay.TopicJobEvents {
			f.topics[r.int(0)], f.most = name, max(f.most, r.int(2))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.topics.followed = f
	t.after = append(t.after, func() { t.w.followed = f })
	return f, nil
}

// forgetTopics is for a transaction that has changed one.
func (t *busTx) forgetTopics() {
	t.topics.named, t.topics.targets, t.topics.followed, t.counter = nil, nil, nil, nil
}
