package entity

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// FollowedTenants has the topics of job events that have subscriptions.
type FollowedTenants struct {
	Version int64            // of all topics, when this was read
	Topics  map[int64]string // by tenant
	Numbers map[string]int64 // of these topics
	Most    int64            // subscriptions of one of them
}

const sqlFollowed = `
SELECT tenant, name, n, no FROM (
  SELECT t.no, t.tenant, t.name, (SELECT count(*) FROM queues s WHERE s.topic = t.no AND s.kind = 'messages') AS n
  FROM queues t WHERE t.is_topic = 1 AND t.kind = 'messages' AND t.name LIKE ?) x
WHERE n > 0`

// ReadFollowed reads them all, as of that version of all topics.
func ReadFollowed(c driver.Conn, version int64) (*FollowedTenants, error) {
	f := &FollowedTenants{Version: version, Topics: map[int64]string{}, Numbers: map[string]int64{}}
	return f, c.Prep(sqlFollowed).Text("%/" + forebay.TopicJobEvents).Each(func(r driver.Row) error {
		if name := r.Text(1); NameOf(name) == forebay.TopicJobEvents {
			f.Topics[r.Int(0)], f.Numbers[name], f.Most = name, r.Int(3), max(f.Most, r.Int(2))
		}
		return nil
	})
}
