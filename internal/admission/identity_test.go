package admission

import (
	"fmt"
	"testing"

	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/quota"
)

// TestWhatIsLearnedBelongsToTheEndpoint: with another endpoint of the same name, learning
// begins anew; with the former one it goes on. An operator's pause is of the name. What was
// learned can be forgotten.
func TestWhatIsLearnedBelongsToTheEndpoint(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		do := func(f func(*Tx) error) {
			t.Helper()
			if _, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (struct{}, error) { return struct{}{}, f(tx) }); err != nil {
				t.Fatal(err)
			}
		}
		configure := func(identity string) { // as a process does that is configured otherwise
			s.Admission.Identify(Identities{"east": identity})
		}
		call := func() {
			do(func(tx *Tx) error {
				d, err := tx.Deployment("east")
				if err == nil {
					d.Reserve(tx.Now, quota.Limits{}, quota.Request{})
				}
				return err
			})
		}
		check := func(when string, calls int64, paused bool) {
			t.Helper()
			h, err := s.Admission.Holding(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			d := h.Deployments["east"]
			if d == nil {
				d = &quota.State{}
			}
			if st := d.Status(h.Now, quota.Limits{}); st.Counts.Calls != calls || st.Operator != paused {
				t.Errorf("%s: %d calls are known, paused %t; expected %d and %t", when, st.Counts.Calls, st.Operator, calls, paused)
			}
			if known := h.Since["east"] > 0; known != (calls > 0) {
				t.Errorf("%s: it is known since when: %t", when, known)
			}
		}
		configure("one")
		call()
		check("at first", 1, false)
		configure("two")
		check("another endpoint", 0, false)
		call()
		call()
		check("another endpoint, called", 2, false)
		configure("one")
		check("the former endpoint", 1, false)
		if err := s.Admission.PauseDeployment(t.Context(), "east", true, audit.Act{}); err != nil {
			t.Fatal(err)
		}
		configure("two")
		check("paused under another configuration", 2, true)
		configure("three")
		do(func(tx *Tx) error {
			d, err := tx.Deployment("east")
			if err == nil && !d.Paused() {
				t.Error("what is new is not paused")
			}
			return err
		})
		if err := s.Admission.PauseDeployment(t.Context(), "east", false, audit.Act{}); err != nil {
			t.Fatal(err)
		}
		configure("two")
		check("resumed under another configuration", 2, false)
		if err := s.Admission.ForgetDeployment(t.Context(), "east", audit.Act{Actor: "a", Action: "forget-deployment", Target: "east"}); err != nil {
			t.Fatal(err)
		}
		call()
		check("forgotten", 1, false)
		configure("one")
		check("forgotten under another configuration", 0, false)
		for i := range 2 * maxIdentities {
			configure(fmt.Sprint("endpoint ", i))
			call()
		}
		do(func(tx *Tx) error {
			rows := 0
			err := tx.Prep("SELECT name FROM deployment_states WHERE name = ?").Text("east").Each(func(driver.Row) error { rows++; return nil })
			if rows > maxIdentities+1 {
				t.Errorf("%d endpoints of a name are remembered", rows)
			}
			return err
		})
	})
}

// TestWhatWasLearnedBeforeIdentities: what was stored before it was said what is called is
// taken over by the first that asks.
func TestWhatWasLearnedBeforeIdentities(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		if err := s.Admission.PauseDeployment(t.Context(), "east", true, audit.Act{}); err != nil {
			t.Fatal(err)
		}
		for _, identity := range []string{"one", "two"} {
			s.Admission.Identify(Identities{"east": identity})
			h, err := s.Admission.Holding(t.Context())
			if err != nil || h.Deployments["east"] == nil || !h.Deployments["east"].Paused() {
				t.Fatalf("%v: %s is not paused", err, identity)
			}
		}
	})
}

// TestNoIdentityIsOneToo: a process that has no identity for a name keeps what it learned,
// whatever others call by that name. That includes what it took over from before there were
// identities. One other process takes that over as well.
func TestNoIdentityIsOneToo(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		as := func(identity string, f func(*Tx) error) {
			t.Helper()
			s.Admission.Identify(Identities{"east": identity})
			_, err := db.TransactIn(t.Context(), Key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (struct{}, error) { return struct{}{}, f(tx) })
			mustDo(t, err)
		}
		call := func(identity string) {
			t.Helper()
			as(identity, func(tx *Tx) error {
				d, err := tx.Deployment("east")
				if err == nil {
					d.Reserve(tx.Now, quota.Limits{}, quota.Request{})
				}
				return err
			})
		}
		check := func(identity string, calls int64) {
			t.Helper()
			as(identity, func(*Tx) error { return nil })
			h, err := s.Admission.Holding(t.Context())
			mustDo(t, err)
			d := h.Deployments["east"]
			if d == nil {
				d = &quota.State{}
			}
			if got := d.Status(h.Now, quota.Limits{}).Counts.Calls; got != calls {
				t.Errorf("%q knows of %d calls, not %d", identity, got, calls)
			}
			if h.Since["east"] < 0 {
				t.Errorf("%q has learned since %d", identity, h.Since["east"])
			}
		}
		call("")
		check("one", 0)
		call("one")
		call("")
		check("", 2)
		check("one", 1)

		as("", func(tx *Tx) error { // as it was stored before there were identities
			return tx.Prep("DELETE FROM deployment_states WHERE name = ? AND identity <> ''").Text("east").Exec()
		})
		as("", func(tx *Tx) error {
			return tx.Prep("UPDATE deployment_states SET since = 0 WHERE name = ?").Text("east").Exec()
		})
		call("two")
		check("two", 3)
		check("three", 0)
		call("three")
		call("")
		check("", 3)
		for i := range 2 * maxIdentities {
			call(fmt.Sprint("endpoint ", i))
		}
		check("", 3)
	})
}

// TestHoldingHasAllDeployments: what may hold calls back is known of each deployment, also of one
// that is called something else here.
func TestHoldingHasAllDeployments(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		names := []string{"", "East", "a", "east", "east 2", "é"}
		for _, identity := range []string{"one", "two"} {
			identities := Identities{}
			for _, name := range names {
				identities[name] = identity
			}
			s.Admission.Identify(identities)
			for _, name := range names {
				mustDo(t, s.Admission.PauseDeployment(t.Context(), name, true, audit.Act{}))
			}
		}
		s.Admission.Identify(Identities{})
		h, err := s.Admission.Holding(t.Context())
		mustDo(t, err)
		for _, name := range names {
			if d := h.Deployments[name]; d == nil || !d.Paused() {
				t.Errorf("%q is not known to be paused", name)
			}
		}
		if len(h.Deployments) != len(names) {
			t.Errorf("%d deployments are known of %d", len(h.Deployments), len(names))
		}
	})
}
