package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/feed"
	"github.com/forebayhq/forebay/internal/quota"
)

// Holding is what may hold calls back.
type Holding struct {
	Deployments map[string]*quota.State // by name: those of which anything is known
	Since       map[string]int64        // when what is known of one began to be learned; 0: nobody knows
	Concurrency Concurrency
	Now         int64 // by the database's clock
}

// Holding returns what may hold calls back now.
func (s *Store) Holding(ctx context.Context) (h Holding, err error) {
	err = s.Read(ctx, func(c driver.Conn) error {
		h, err = s.ReadHolding(c)
		return err
	})
	return h, err
}

func (s *Store) ReadHolding(c driver.Conn) (h Holding, err error) {
	h = Holding{Deployments: map[string]*quota.State{}, Since: map[string]int64{}, Now: c.Now()}
	if h.Concurrency.use, _, err = readConcurrency(c, h.Now); err != nil {
		return h, err
	}
	known := map[string]*Deployment{}
	states := sqlDeployments
	if s.Writer.Shared() {
		states = sqlAllStates
	}
	err = c.Prep(states).Each(func(r driver.Row) error {
		Key.In(s.Writer).identities.Load().read(r, known)
		return nil
	})
	for name, d := range known {
		h.Deployments[name], h.Since[name] = &d.State, d.since
	}
	return h, err
}

// Identify says what this process calls by the names of deployments from the next transaction on.
func (s *Store) Identify(ids Identities) { Key.In(s.Writer).identities.Store(&ids) }

// ReconsiderCalls has all jobs looked at that wait for a quota or a deployment: what holds them
// back has changed.
func (s *Store) ReconsiderCalls(ctx context.Context) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		t.SettingsChanged()
		return struct{}{}, nil
	})
	return err
}

// PauseDeployment keeps every call away from a deployment, or ends that. Ending it has one that
// turned calls away tried again at once, whether or not it was paused.
func (s *Store) PauseDeployment(ctx context.Context, name string, paused bool, entry audit.Act) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		d, err := t.Deployment(name)
		if err != nil {
			return struct{}{}, err
		}
		if paused {
			d.Pause()
		} else {
			d.Resume()
			d.Retry(t.Now)
		}
		if err := t.pauseOthers(name, paused); err != nil {
			return struct{}{}, err
		}
		t.SettingsChanged()
		what := "resumed"
		if paused {
			what = "paused"
		}
		t.tell(name, what, "", 0)
		return struct{}{}, audit.Append(t.Tx, entry)
	})
	return err
}

// pauseOthers is PauseDeployment for what other processes call by the name.
func (t *Tx) pauseOthers(name string, paused bool) error {
	type other struct {
		identity string
		state    *Deployment
	}
	var others []other
	err := t.Prep("SELECT identity, state FROM deployment_states WHERE name = ? AND identity <> ?").Text(name).Text(t.identities[name]).Each(func(r driver.Row) error {
		others = append(others, other{r.Text(0), readDeployment(r.Blob(1))})
		return nil
	})
	for _, o := range others {
		if err != nil || o.state.Paused() == paused {
			continue
		}
		if o.state.Resume(); paused {
			o.state.Pause()
		}
		var state []byte
		if state, err = o.state.MarshalBinary(); err == nil {
			err = t.Prep("UPDATE deployment_states SET state = ? WHERE name = ? AND identity = ?").Blob(state).Text(name).Text(o.identity).Exec()
		}
	}
	return err
}

// ForgetDeployment begins anew to learn of a deployment, whatever is called by its name. An
// operator's pause stays.
func (s *Store) ForgetDeployment(ctx context.Context, name string, entry audit.Act) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		d, err := t.Deployment(name)
		if err != nil {
			return struct{}{}, err
		}
		paused := d.Paused()
		if *d = (Deployment{used: true, place: d.place}); paused {
			d.Pause()
		}
		if err := t.Prep("DELETE FROM deployment_states WHERE name = ?").Text(name).Exec(); err != nil {
			return struct{}{}, err
		}
		t.SettingsChanged()
		t.tell(name, "forgotten", "", 0)
		return struct{}{}, audit.Append(t.Tx, entry)
	})
	return err
}

// RetryDenied has the next call find out whether the deployments among these that turned calls
// away still do.
func (s *Store) RetryDenied(ctx context.Context, names []string) error {
	_, err := db.TransactIn(ctx, Key, s.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		if err := t.Learn(names); err != nil {
			return struct{}{}, err
		}
		denied := false
		for _, name := range names {
			if d := t.Deployments[name]; d != nil && d.Denied() != quota.NotDenied {
				d.Retry(t.Now)
				d.used, denied = true, true
			}
		}
		if denied {
			t.SettingsChanged()
		}
		return struct{}{}, nil
	})
	return err
}

// DeploymentChanges returns what happened to a deployment, or to all (""), below a number (0:
// from the newest on), newest first.
func (s *Store) DeploymentChanges(ctx context.Context, name string, below int64, limit int) (changes []forebay.DeploymentChange, err error) {
	if below == 0 {
		below = 1 << 62
	}
	err = s.Read(ctx, func(c driver.Conn) error {
		changes = nil
		return c.Prep("SELECT no, deployment, at, kind, until, quota, reason FROM deployment_changes WHERE (deployment = ?1 OR ?1 = '') AND no < ?2 ORDER BY no DESC LIMIT ?3 + 0").
			Text(name).Int(below).Int(int64(limit)).Each(func(r driver.Row) error {
			changes = append(changes, deploymentChange(r.Int(0), r.Text(1), quota.Change{At: r.Int(2), Kind: quota.ChangeKind(r.Text(3)), Until: r.Int(4), Limit: r.Int(5)}, r.Text(6)))
			return nil
		})
	})
	return changes, err
}

func deploymentChange(no int64, name string, c quota.Change, reason string) forebay.DeploymentChange {
	told := forebay.DeploymentChange{Number: no, Deployment: name, Type: string(c.Kind), At: driver.FromMillis(c.At), TokensPerMinute: c.Limit, Reason: reason}
	if c.Until > 0 {
		until := driver.FromMillis(c.Until)
		told.Until = &until
	}
	return told
}

// keptChanges is how many changes of all deployments are kept.
const keptChanges = 10_000

const (
	sqlDeploymentChange = "INSERT INTO deployment_changes (deployment, at, kind, until, quota, reason) VALUES (?, ?, ?, ?, ?, ?) RETURNING no"
	sqlForgetOldChanges = "DELETE FROM deployment_changes WHERE no <= ?"
)

// changeDeployment records what happened to a deployment and sends it to subscribers. Once it
// is on disk, listeners in this process are told.
func (t *Tx) changeDeployment(name string, c quota.Change) error {
	var no int64
	_, err := t.Prep(sqlDeploymentChange).Text(name).Int(c.At).Text(string(c.Kind)).IntOrNull(c.Until).IntOrNull(c.Limit).TextOrNull(c.Denial.String()).
		One(func(r driver.Row) { no = r.Int(0) })
	if err != nil {
		return err
	}
	if err := t.Prep(sqlForgetOldChanges).Int(no - keptChanges).Exec(); err != nil {
		return err
	}
	change := deploymentChange(no, name, c, c.Denial.String())
	t.After = append(t.After, func() { t.W.store.deployments.Notify(change) })
	t.tell(name, change.Type, change.Reason, c.Until)
	t.Notify(db.WordSettings, 0, 0, 0) // other processes look again: what they know of when to may be wrong now
	return bus.Key.Of(t.Tx).Topics.Publish(entity.OperationsTopic, func() (m bus.MessageContent, err error) {
		m = bus.MessageContent{MessageID: fmt.Sprintf("deployment-%d", no), CorrelationID: name, Subject: change.Type, ContentType: "application/json", Text: true}
		if m.Body, err = json.Marshal(publishedChange{change, change.At}); err != nil {
			return m, err
		}
		properties := forebay.Properties{"deployment": name, "type": change.Type}
		if change.Reason != "" {
			properties["reason"] = change.Reason
		}
		m.Properties, err = json.Marshal(properties)
		return m, err
	})
}

// tell tells whoever listens what happened to a deployment. until may be 0.
func (t *Tx) tell(name, what, reason string, until int64) {
	if t.Heard() {
		t.Tell(&feed.Object{Kind: forebay.FeedDeployment, ID: name, Type: what, Reason: reason, Until: until})
	}
}

// publishedChange is a change as subscribers get it, with its time under the name of a
// published event.
type publishedChange struct {
	forebay.DeploymentChange
	Timestamp time.Time `json:"timestamp"`
}
