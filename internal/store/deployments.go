package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// Holding is what may hold calls back.
type Holding struct {
	Deployments map[string]*quota.State // by name: those of which anything is known
	Since       map[string]int64        // when what is known of one began to be learned; 0: nobody knows
	Slots       Slots
	Now         int64 // by the database's clock
}

// Holding returns what may hold calls back now.
func (s *AdmissionStore) Holding(ctx context.Context) (h Holding, err error) {
	err = s.read(ctx, func(c conn) error {
		h, err = s.holding(c)
		return err
	})
	return h, err
}

func (s *AdmissionStore) holding(c conn) (h Holding, err error) {
	h = Holding{Deployments: map[string]*quota.State{}, Since: map[string]int64{}, Now: c.now()}
	if h.Slots.use, _, err = readSlots(c, h.Now); err != nil {
		return h, err
	}
	known := map[string]*deployment{}
	err = c.prep(sqlDeployments).each(func(r row) error {
		admissionKey.in(s.writer).identities.Load().read(r, known)
		return nil
	})
	for name, d := range known {
		h.Deployments[name], h.Since[name] = &d.State, d.since
	}
	return h, err
}

// Identify says what this process calls by the names of deployments from the next transaction on.
func (s *AdmissionStore) Identify(ids Identities) { admissionKey.in(s.writer).identities.Store(&ids) }

// ReconsiderCalls has all jobs looked at that wait for a quota or a deployment: what holds them back has changed.
func (s *AdmissionStore) ReconsiderCalls(ctx context.Context) error {
	_, err := transactIn(ctx, admissionKey, s.writer, op{stage: stageChange}, func(t *admissionTx) (struct{}, error) {
		t.settingsChanged()
		return struct{}{}, nil
	})
	return err
}

// PauseDeployment keeps every call away from a deployment, or ends that. Ending it has one that turned calls away tried again
// at once, whether or not it was paused.
func (s *AdmissionStore) PauseDeployment(ctx context.Context, name string, paused bool, audit Audit) error {
	_, err := transactIn(ctx, admissionKey, s.writer, op{stage: stageChange}, func(t *admissionTx) (struct{}, error) {
		d, err := t.deployment(name)
		if err != nil {
			return struct{}{}, err
		}
		if paused {
			d.Pause()
		} else {
			d.Resume()
			d.Retry(t.now)
		}
		if err := t.pauseOthers(name, paused); err != nil {
			return struct{}{}, err
		}
		t.settingsChanged()
		return struct{}{}, auditIn(t.tx, audit)
	})
	return err
}

// pauseOthers is PauseDeployment for what other processes call by the name.
func (t *admissionTx) pauseOthers(name string, paused bool) error {
	type other struct {
		identity string
		state    *deployment
	}
	var others []other
	err := t.prep("SELECT identity, state FROM deployment_states WHERE name = ? AND identity <> ?").text(name).text(t.identities[name]).each(func(r row) error {
		others = append(others, other{r.text(0), readDeployment(r.blob(1))})
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
			err = t.prep("UPDATE deployment_states SET state = ? WHERE name = ? AND identity = ?").blob(state).text(name).text(o.identity).exec()
		}
	}
	return err
}

// ForgetDeployment begins anew to learn of a deployment, whatever is called by its name. An operator's pause stays.
func (s *AdmissionStore) ForgetDeployment(ctx context.Context, name string, audit Audit) error {
	_, err := transactIn(ctx, admissionKey, s.writer, op{stage: stageChange}, func(t *admissionTx) (struct{}, error) {
		d, err := t.deployment(name)
		if err != nil {
			return struct{}{}, err
		}
		paused := d.Paused()
		if *d = (deployment{used: true}); paused {
			d.Pause()
		}
		if err := t.prep("DELETE FROM deployment_states WHERE name = ?").text(name).exec(); err != nil {
			return struct{}{}, err
		}
		t.settingsChanged()
		return struct{}{}, auditIn(t.tx, audit)
	})
	return err
}

// RetryDenied has the next call find out whether the deployments among these that turned calls away still do.
func (s *AdmissionStore) RetryDenied(ctx context.Context, names []string) error {
	_, err := transactIn(ctx, admissionKey, s.writer, op{stage: stageChange}, func(t *admissionTx) (struct{}, error) {
		if err := t.learn(names); err != nil {
			return struct{}{}, err
		}
		denied := false
		for _, name := range names {
			if d := t.deployments[name]; d != nil && d.Denied() != quota.NotDenied {
				d.Retry(t.now)
				d.used, denied = true, true
			}
		}
		if denied {
			t.settingsChanged()
		}
		return struct{}{}, nil
	})
	return err
}

// DeploymentChanges returns what happened to a deployment, or to all (""), below a number (0: from the
// newest on), newest first.
func (s *AdmissionStore) DeploymentChanges(ctx context.Context, name string, below int64, limit int) (changes []forebay.DeploymentChange, err error) {
	if below == 0 {
		below = 1 << 62
	}
	err = s.read(ctx, func(c conn) error {
		changes = nil
		return c.prep("SELECT no, deployment, at, kind, until, quota, reason FROM deployment_changes WHERE (deployment = ?1 OR ?1 = '') AND no < ?2 ORDER BY no DESC LIMIT ?3 + 0").
			text(name).int(below).int(int64(limit)).each(func(r row) error {
			changes = append(changes, deploymentChange(r.int(0), r.text(1), quota.Change{At: r.int(2), Kind: quota.ChangeKind(r.text(3)), Until: r.int(4), Limit: r.int(5)}, r.text(6)))
			return nil
		})
	})
	return changes, err
}

func deploymentChange(no int64, name string, c quota.Change, reason string) forebay.DeploymentChange {
	told := forebay.DeploymentChange{Number: no, Deployment: name, Type: string(c.Kind), At: fromMillis(c.At), TokensPerMinute: c.Limit, Reason: reason}
	if c.Until > 0 {
		until := fromMillis(c.Until)
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

// changeDeployment records what happened to a deployment, and tells it to those who subscribe to that and,
// once it is on disk, to whoever listens in this process.
func (t *admissionTx) changeDeployment(name string, c quota.Change) error {
	var no int64
	_, err := t.prep(sqlDeploymentChange).text(name).int(c.At).text(string(c.Kind)).intOrNull(c.Until).intOrNull(c.Limit).textOrNull(c.Denial.String()).
		one(func(r row) { no = r.int(0) })
	if err != nil {
		return err
	}
	if err := t.prep(sqlForgetOldChanges).int(no - keptChanges).exec(); err != nil {
		return err
	}
	change := deploymentChange(no, name, c, c.Denial.String())
	t.after = append(t.after, func() { t.w.store.deployments.tell(change) })
	t.notify(wordSettings, 0, 0, 0) // other processes look again: what they know of when to may be wrong now
	return busKey.of(t.tx).publish(operationsTopicStore, func() (m MessageContent, err error) {
		m = MessageContent{MessageID: fmt.Sprintf("deployment-%d", no), CorrelationID: name, Subject: change.Type, ContentType: "application/json", Text: true}
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

// publishedChange is a change as subscribers get it, with its time under the name of a published event.
type publishedChange struct {
	forebay.DeploymentChange
	Timestamp time.Time `json:"timestamp"`
}
