package bus

import (
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/bus/rules"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// topicsCounter names the counter that rises with every change of a topic, a subscription or a
// rule.
const topicsCounter = "topics"

// FollowedTenants has the topics of job events that have subscriptions.
type FollowedTenants = entity.FollowedTenants

// MostOps is how many operations one transaction takes. Each may publish a few events. Their
// copies cannot be postponed like those of callers: they are stored with the change.
func (p *Participant) MostOps() int {
	if p.followed == nil || p.followed.Most == 0 {
		return db.MaxBatchOps
	}
	return min(db.MaxBatchOps, max(rules.FullCopies/int(p.followed.Most), 1))
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
	version := int64(0)
	if t.counter != nil {
		version = *t.counter
	} else if _, err := t.Prep("SELECT value FROM counters WHERE name = ?").Text(topicsCounter).One(func(r driver.Row) { version = r.Int(0) }); err != nil {
		return nil, err
	}
	if known := t.W.followed; known != nil && known.Version == version {
		t.followed = known
		return known, nil
	}
	f, err := entity.ReadFollowed(t.Conn, version)
	if err != nil {
		return nil, err
	}
	t.followed = f
	t.After = append(t.After, func() { t.W.followed = f })
	return f, nil
}

// forget discards what the transaction has read of topics, because it has changed one.
func (t *topicTx) forget() {
	t.byName, t.followed, t.counter, t.soon = nil, nil, nil, ""
	t.forwarding.targets, t.forwarding.held = nil, nil
}
