package admission

import (
	"bytes"
	"context"
	"math/rand/v2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/quota"
)

// A claim and the reservation of what its call needs are one step: a job that may not be called
// now is not locked. What is known of a deployment is one row. The transactions that claim and
// settle read and write it. They exclude each other among all processes.

// Option is a deployment that a job could be called at, and what the call would need there.
type Option struct {
	Deployment string
	Limits     quota.Limits
	Request    quota.Request
	Price      forebay.Price
	// Concurrency is how many calls there may be at once; 0: any number.
	Concurrency int64

	Hold Amount // what the call may use at most
}

// Plan lists where a job could be called, in the order in which to try. None: nothing holds it
// back. input is nil when it is not inline; size is that of the input in any case. stored is what
// was kept of the estimate of an input in blob storage; nil: nothing.
type Plan func(task string, input []byte, size int64, stored *forebay.CallEstimate) []Option

// Asking has the calls ask for so many tokens of output; 0: for what they do.
func Asking(options []Option, maxOutput int64) []Option {
	if maxOutput > 0 {
		for i := range options {
			options[i].Request.MaxOutputTokens = maxOutput
		}
	}
	return options
}

// Admission is where a delivery is to be called, and what was set aside for that. Whoever
// settles the delivery says in Outcome what came of the call; nil: it was not sent.
type Admission struct {
	Option
	Reservation quota.Reservation
	Outcome     *quota.Outcome
	Elsewhere   bool // of a probe: another deployment of its route takes calls
}

// Deployment is the state of one in a transaction.
type Deployment struct {
	quota.State
	stored []byte // as it is in the database; nil: it is not
	used   bool   // it may have changed
	since  int64  // when it began to be learned; 0: nobody knows
	own    bool   // it was learned of what this process calls by the name, not of something else
	place  int64  // of all rows of its name
	heir   bool   // it is that of before identities were kept: of whoever asks first
}

const (
	sqlDeployments = "SELECT name, identity, since, state, place FROM deployment_states"
	sqlStates      = "SELECT d.name, d.identity, d.since, d.state, d.place FROM unnest(CAST(? AS text[])) AS x(name), " + statesOfName
	// sqlAllStates is sqlDeployments for a server. It goes from one name to the next, and passes no
	// old versions between them.
	sqlAllStates = `WITH RECURSIVE x(name) AS (SELECT '' COLLATE "C" UNION ALL
  SELECT (SELECT name FROM deployment_states WHERE name > x.name ORDER BY name LIMIT 1) FROM x WHERE x.name IS NOT NULL)
SELECT d.name, d.identity, d.since, d.state, d.place FROM x, ` + statesOfName
	// OFFSET 0 has the server look rows up by name and place, though it takes the table for small.
	statesOfName = "LATERAL (SELECT place FROM deployment_states WHERE name = x.name ORDER BY place LIMIT 1) AS p, " +
		"LATERAL (SELECT name, identity, since, state, place FROM deployment_states WHERE name = x.name AND place = p.place OFFSET 0) AS d"
)

// Identities are digests of what this process calls by the names of deployments: what was
// learned of one is not true of another. A name without one has what was learned of it whatever
// that was.
type Identities map[string]string

// maxIdentities is of how many things of one name it is kept what was learned.
const maxIdentities = 8

// read takes in one row of what is known. An operator's pause is of the name, whatever is
// called by it.
func (ids Identities) read(r driver.Row, known map[string]*Deployment) {
	name, identity := r.Text(0), r.Text(1)
	d := known[name]
	if d == nil {
		d = &Deployment{}
		known[name] = d
	}
	of := readDeployment(r.Blob(3))
	d.place, of.place = r.Int(4), r.Int(4)
	switch {
	case identity == ids[name]:
		of.since, of.own = max(r.Int(2), 0), true
		*d = *of
	case d.own:
	case identity == "" && r.Int(2) == 0:
		of.heir, of.stored = true, nil
		*d = *of
	case of.Paused() && !d.heir:
		d.Pause()
	}
}

// StatesOf asks a server for the states of some deployments, and puts them beside those that
// are known.
func (t *Tx) StatesOf(names []string) []driver.PipelineQuery {
	var unknown []string
	for _, name := range names {
		if t.Deployments[name] == nil {
			if t.Deployments == nil {
				t.Deployments = map[string]*Deployment{}
			}
			t.Deployments[name] = &Deployment{}
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return []driver.PipelineQuery{{SQL: sqlStates, Bind: func(st driver.Statement) driver.Statement { return st.Text(driver.ArrayOfTexts(unknown)) },
		OnRow: func(r driver.Row) { t.identities.read(r, t.Deployments) }}}
}

// Learn reads the states of deployments that are not known yet. Where this process writes alone
// all of them are, from one transaction to the next.
func (t *Tx) Learn(names []string) error {
	switch {
	case t.W.Shared():
		return t.Alone(func() error { return t.RunPipeline(t.StatesOf(names)) })
	case t.W.Deployments == nil:
		t.W.Deployments = map[string]*Deployment{}
		err := t.Prep(sqlDeployments).Each(func(r driver.Row) error {
			t.identities.read(r, t.W.Deployments)
			return nil
		})
		if err != nil {
			return err
		}
	}
	t.Deployments = t.W.Deployments
	return nil
}

// Deployment returns the state of a deployment.
func (t *Tx) Deployment(name string) (*Deployment, error) {
	if err := t.Learn([]string{name}); err != nil {
		return nil, err
	}
	d := t.Deployments[name]
	if d == nil {
		d = &Deployment{}
		t.Deployments[name] = d
	}
	d.used = true
	return d, nil
}

// readDeployment treats a state that it cannot read, such as a newer version's, as empty. What
// was sent in the last minute is then forgotten, and learned again.
func readDeployment(stored []byte) *Deployment {
	d := &Deployment{stored: stored}
	if err := d.UnmarshalBinary(stored); err != nil {
		d.State = quota.State{}
	}
	return d
}

// storeDeployments writes the states that have changed, and what there is to tell of them.
func (t *Tx) storeDeployments() error {
	for name, d := range t.Deployments {
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
	sqlStoreDeployment = `INSERT INTO deployment_states (name, place, identity, since, state) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name, place, identity) DO UPDATE SET since = excluded.since, state = excluded.state`
	// What no process with an identity inherits any more stays for those that have none.
	sqlInherited           = "UPDATE deployment_states SET since = ? WHERE name = ? AND place = ? AND identity = '' AND since = 0"
	sqlForgetOldIdentities = `DELETE FROM deployment_states WHERE name = ?1 AND place = ?4 AND identity <> ?2 AND identity <> '' AND identity NOT IN
  (SELECT identity FROM deployment_states WHERE name = ?1 AND place = ?4 AND identity <> '' ORDER BY since DESC, identity LIMIT ?3 + 0)`
	sqlPlace = "UPDATE deployment_states SET place = ? WHERE name = ? AND place = ?"
)

// perPlace is how many changes the rows of a name have at one place, in the mean. PostgreSQL keeps
// every version of a row for as long as any snapshot on the server may see it, and who looks for
// the row passes those at its place.
const perPlace = 16

// inherited is the since of a state without an identity once a process with one has taken it
// over. Nobody knows the time, but no other process takes it over.
const inherited = -1

// storeDeployment writes the state of one. The first time, those of the oldest others of its
// name make room.
func (t *Tx) storeDeployment(name string, d *Deployment) error {
	identity := t.identities[name]
	first, heir := !d.own, d.heir
	if first && !heir {
		d.since = t.Now
	}
	since := d.since
	if identity == "" && since == 0 { // it is in use
		since = inherited
	}
	d.own, d.heir = true, false
	if t.W.Shared() && rand.IntN(perPlace) == 0 {
		d.place--
		if err := t.Prep(sqlPlace).Int(d.place).Text(name).Int(d.place + 1).Exec(); err != nil {
			return err
		}
	}
	err := t.Prep(sqlStoreDeployment).Text(name).Int(d.place).Text(identity).Int(since).Blob(d.stored).Exec()
	if err == nil && heir {
		err = t.Prep(sqlInherited).Int(inherited).Text(name).Int(d.place).Exec()
	}
	if err == nil && first {
		err = t.Prep(sqlForgetOldIdentities).Text(name).Text(identity).Int(maxIdentities).Int(d.place).Exec()
	}
	return err
}

// Told takes in what came of a call. Jobs that the deployment holds are looked at again.
func (t *Tx) NoteOutcome(a *Admission) error {
	d, err := t.Deployment(a.Deployment)
	if err != nil {
		return err
	}
	outcome := quota.Outcome{Kind: quota.NotSent}
	if a.Outcome != nil {
		outcome = *a.Outcome
	}
	d.Feedback(t.Now, a.Limits, a.Reservation, outcome, rand.Float64)
	t.W.Jobs.Unblock(a.Deployment, t.Now)
	return nil
}

// Tell takes in what a call told before it is over, its first headers. It does not wait for
// that, and may come to nothing when the writer has much to do.
func (s *Store) SendOutcome(a Admission) {
	r := &db.Request[struct{}]{Op: a.telling(), Ctx: context.Background(), Done: make(chan struct{}), Run: a.record}
	select {
	case s.Writer.Ops <- r:
	default:
	}
}

// Tells is Tell for what must not be lost: how a call ended whose delivery somebody else has
// settled.
func (s *Store) RecordOutcome(ctx context.Context, a Admission) error {
	_, err := db.Transact(ctx, s.Writer, a.telling(), a.record)
	return err
}

func (a *Admission) telling() db.Op {
	return db.Op{Stage: db.StageSettle, Local: true, Interleaves: true, Hints: DeploymentHint(a.Deployment)}
}

func (a *Admission) record(t *db.Tx) (struct{}, error) { return struct{}{}, Key.Of(t).NoteOutcome(a) }
