package store

import (
	"bytes"
	"context"
	"math/rand/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

// A claim and the reservation of what its call needs are one step: a job that may not be called now is
// not locked. What is known of a deployment is one row, read and written in the transactions that
// claim and settle, which exclude each other among all processes.

// Option is a deployment that a job could be called at, and what the call would need there.
type Option struct {
	Deployment string
	Limits     quota.Limits
	Request    quota.Request
	Price      forebay.Price
	// Concurrency is how many calls there may be at once; 0: any number.
	Concurrency int64

	hold Amount // what the call may use at most
}

// Plan lists where a job could be called, in the order in which to try. None: nothing holds it back.
// input is nil when it is not inline; size is that of the input in any case.
type Plan func(task string, input []byte, size int64) []Option

// Asking has the calls ask for so many tokens of output; 0: for what they do.
func Asking(options []Option, maxOutput int64) []Option {
	if maxOutput > 0 {
		for i := range options {
			options[i].Request.MaxOutputTokens = maxOutput
		}
	}
	return options
}

// Admission is where a delivery is to be called, and what was set aside for that. Whoever settles the
// delivery says in Outcome what came of the call; nil: it was not sent.
type Admission struct {
	Option
	Reservation quota.Reservation
	Outcome     *quota.Outcome
}

// deployment is the state of one in a transaction.
type deployment struct {
	quota.State
	stored []byte // as it is in the database; nil: it is not
	used   bool   // it may have changed
	since  int64  // when it began to be learned; 0: nobody knows
	own    bool   // it was learned of what this process calls by the name, not of something else
	heir   bool   // it is that of before identities were kept: of whoever asks first
}

const (
	sqlDeployments = "SELECT name, identity, since, state FROM deployment_states"
	sqlStates      = "SELECT d.name, d.identity, d.since, d.state FROM unnest(CAST(? AS text[])) AS x(name), " +
		"LATERAL (SELECT name, identity, since, state FROM deployment_states WHERE name = ANY (ARRAY[x.name])) AS d"
)

// Identities are digests of what this process calls by the names of deployments: what was learned of one is not
// true of another. A name without one has what was learned of it whatever that was.
type Identities map[string]string

// maxIdentities is of how many things of one name it is kept what was learned.
const maxIdentities = 8

// read takes in one row of what is known. An operator's pause is of the name, whatever is called by it.
func (ids Identities) read(r row, known map[string]*deployment) {
	name, identity := r.text(0), r.text(1)
	d := known[name]
	if d == nil {
		d = &deployment{}
		known[name] = d
	}
	switch of := readDeployment(r.blob(3)); {
	case identity == ids[name]:
		of.since, of.own = max(r.int(2), 0), true
		*d = *of
	case d.own:
	case identity == "" && r.int(2) == 0:
		of.heir, of.stored = true, nil
		*d = *of
	case of.Paused() && !d.heir:
		d.Pause()
	}
}

// statesOf asks a server for the states of some deployments, and puts them beside those that are known.
func (t *admissionTx) statesOf(names []string) []question {
	var unknown []string
	for _, name := range names {
		if t.deployments[name] == nil {
			if t.deployments == nil {
				t.deployments = map[string]*deployment{}
			}
			t.deployments[name] = &deployment{}
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return []question{{sqlStates, func(st statement) statement { return st.text(arrayOfTexts(unknown)) },
		func(r row) { t.identities.read(r, t.deployments) }}}
}

// learn reads the states of deployments that are not known yet. Where this process writes alone all of them are,
// from one transaction to the next.
func (t *admissionTx) learn(names []string) error {
	switch {
	case t.w.shared():
		return t.askAll(t.statesOf(names))
	case t.w.deployments == nil:
		t.w.deployments = map[string]*deployment{}
		err := t.prep(sqlDeployments).each(func(r row) error {
			t.identities.read(r, t.w.deployments)
			return nil
		})
		if err != nil {
			return err
		}
	}
	t.deployments = t.w.deployments
	return nil
}

// deployment returns the state of a deployment.
func (t *admissionTx) deployment(name string) (*deployment, error) {
	if err := t.learn([]string{name}); err != nil {
		return nil, err
	}
	d := t.deployments[name]
	if d == nil {
		d = &deployment{}
		t.deployments[name] = d
	}
	d.used = true
	return d, nil
}

// readDeployment takes a state that it cannot read, such as a newer version's, for one of which
// nothing is known: what was sent in the last minute is then forgotten, and learned again.
func readDeployment(stored []byte) *deployment {
	d := &deployment{stored: stored}
	if err := d.UnmarshalBinary(stored); err != nil {
		d.State = quota.State{}
	}
	return d
}

// storeDeployments writes the states that have changed, and what there is to tell of them.
func (t *admissionTx) storeDeployments() error {
	for name, d := range t.deployments {
		if !d.used {
			continue
		}
		d.used = false
		for _, c := range d.Changes() {
			if err := t.changeDeployment(name, c); err != nil {
				return err
			}
		}
		state, err := d.MarshalBinary()
		if err != nil {
			return err
		}
		if bytes.Equal(state, d.stored) {
			continue
		}
		d.stored = state
		if err := t.storeDeployment(name, d); err != nil {
			return err
		}
	}
	return nil
}

const (
	sqlStoreDeployment = `INSERT INTO deployment_states (name, identity, since, state) VALUES (?, ?, ?, ?)
ON CONFLICT (name, identity) DO UPDATE SET since = excluded.since, state = excluded.state`
	// What no process with an identity inherits any more stays for those that have none.
	sqlInherited           = "UPDATE deployment_states SET since = ? WHERE name = ? AND identity = '' AND since = 0"
	sqlForgetOldIdentities = `DELETE FROM deployment_states WHERE name = ?1 AND identity <> ?2 AND identity <> '' AND identity NOT IN
  (SELECT identity FROM deployment_states WHERE name = ?1 AND identity <> '' ORDER BY since DESC, identity LIMIT ?3 + 0)`
)

// inherited is since when the state without an identity is learned once a process with one has taken it over: nobody
// knows, but no other process takes it over.
const inherited = -1

// storeDeployment writes the state of one. The first time, those of the oldest others of its name make room.
func (t *admissionTx) storeDeployment(name string, d *deployment) error {
	identity := t.identities[name]
	first, heir := !d.own, d.heir
	if first && !heir {
		d.since = t.now
	}
	since := d.since
	if identity == "" && since == 0 { // it is in use
		since = inherited
	}
	d.own, d.heir = true, false
	err := t.prep(sqlStoreDeployment).text(name).text(identity).int(since).blob(d.stored).exec()
	if err == nil && heir {
		err = t.prep(sqlInherited).int(inherited).text(name).exec()
	}
	if err == nil && first {
		err = t.prep(sqlForgetOldIdentities).text(name).text(identity).int(maxIdentities).exec()
	}
	return err
}

// told takes in what came of a call. Jobs that the deployment holds are looked at again.
func (t *admissionTx) told(a *Admission) error {
	d, err := t.deployment(a.Deployment)
	if err != nil {
		return err
	}
	outcome := quota.Outcome{Kind: quota.NotSent}
	if a.Outcome != nil {
		outcome = *a.Outcome
	}
	d.Feedback(t.now, a.Limits, a.Reservation, outcome, rand.Float64)
	t.w.jobs.unblock(a.Deployment, t.now)
	return nil
}

// Tell takes in what a call told before it is over, its first headers. It does not wait for that, and
// may come to nothing when the writer has much to do.
func (s *AdmissionStore) Tell(a Admission) {
	r := &request[struct{}]{op: a.telling(), ctx: context.Background(), done: make(chan struct{}), run: a.tell}
	select {
	case s.writer.ops <- r:
	default:
	}
}

// Tells is Tell for what must not be lost: how a call ended whose delivery somebody else has settled.
func (s *AdmissionStore) Tells(ctx context.Context, a Admission) error {
	_, err := transact(ctx, s.writer, a.telling(), a.tell)
	return err
}

func (a *Admission) telling() op {
	return op{stage: stageSettle, local: true, hints: deploymentHint(a.Deployment)}
}

func (a *Admission) tell(t *tx) (struct{}, error) { return struct{}{}, admissionKey.of(t).told(a) }
