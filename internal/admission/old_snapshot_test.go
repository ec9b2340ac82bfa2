package admission

import (
	"errors"
	"testing"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
)

// While somebody keeps an old snapshot on the server, what a transaction reads of a deployment
// does not grow with the changes of its state. What other processes call by its name is kept.
func TestOldSnapshotDoesNotSlowStates(t *testing.T) {
	t.Parallel()
	const n = 4000
	fixture.FewEntriesRead(t, n, 12, []string{"deployment_states_pkey"}, func(s *stores) {
		pause := func(paused bool) {
			_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
				d, err := t.Deployment("east")
				if err == nil && d.own && d.Paused() == paused {
					err = errors.New("another state is read than was stored")
				}
				if d.Resume(); paused {
					d.Pause()
				}
				return struct{}{}, err
			})
			mustDo(t, err)
		}
		learn := func() {
			for _, identity := range []string{"other", "one"} {
				s.Admission.Identify(Identities{"east": identity})
				pause(true)
			}
		}
		learn()
		for i := range n {
			switch i {
			case n / 4:
				analyze(t, s)
			case n / 2: // what comes after that is found before what was forgotten
				mustDo(t, s.Admission.ForgetDeployment(t.Context(), "east", audit.Act{}))
				pause(false)
				learn()
			}
			pause(i%2 == 1)
		}
		mustDo(t, s.DB.Read(t.Context(), func(c driver.Conn) error {
			_, err := c.Prep("SELECT count(*), count(DISTINCT place) FROM deployment_states").One(func(r driver.Row) {
				if r.Int(0) != 2 || r.Int(1) != 1 {
					t.Errorf("2 things of a name have %d rows at %d places", r.Int(0), r.Int(1))
				}
			})
			return err
		}))
	})
}

// analyze has the server plan anew for tables as they are.
func analyze(t *testing.T, s *stores) {
	t.Helper()
	_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *Tx) (struct{}, error) {
		return struct{}{}, t.Prep("ANALYZE deployment_states").Exec()
	})
	mustDo(t, err)
}
