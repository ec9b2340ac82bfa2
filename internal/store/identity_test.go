package store

import (
	"fmt"
	"testing"

	"github.com/forebayhq/forebay/internal/quota"
)

// identify has what else the transaction does be that of a process that calls these things.
func (t *admissionTx) identify(ids Identities) {
	t.w.identities.Store(&ids)
	t.w.known, t.identities, t.w.deployments = &ids, ids, nil
}

// TestWhatIsLearnedBelongsToTheEndpoint: with another endpoint of the same name, learning begins anew; with the former one it
// goes on; an operator's pause is of the name; and what was learned can be forgotten.
func TestWhatIsLearnedBelongsToTheEndpoint(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		do := func(f func(*admissionTx) error) {
			t.Helper()
			if _, err := transactIn(t.Context(), admissionKey, s.DB.writer, op{stage: stageChange}, func(tx *admissionTx) (struct{}, error) { return struct{}{}, f(tx) }); err != nil {
				t.Fatal(err)
			}
		}
		configure := func(identity string) { // as a process does that is configured otherwise
			do(func(tx *admissionTx) error {
				tx.identify(Identities{"east": identity})
				return nil
			})
		}
		call := func() {
			do(func(tx *admissionTx) error {
				d, err := tx.deployment("east")
				if err == nil {
					d.Reserve(tx.now, quota.Limits{}, quota.Request{})
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
		if err := s.Admission.PauseDeployment(t.Context(), "east", true, Audit{}); err != nil {
			t.Fatal(err)
		}
		configure("two")
		check("paused under another configuration", 2, true)
		configure("three")
		do(func(tx *admissionTx) error {
			d, err := tx.deployment("east")
			if err == nil && !d.Paused() {
				t.Error("what is new is not paused")
			}
			return err
		})
		if err := s.Admission.PauseDeployment(t.Context(), "east", false, Audit{}); err != nil {
			t.Fatal(err)
		}
		configure("two")
		check("resumed under another configuration", 2, false)
		if err := s.Admission.ForgetDeployment(t.Context(), "east", Audit{Actor: "a", Action: "forget-deployment", Target: "east"}); err != nil {
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
		do(func(tx *admissionTx) error {
			rows := 0
			err := tx.prep("SELECT name FROM deployment_states WHERE name = ?").text("east").each(func(row) error { rows++; return nil })
			if rows > maxIdentities+1 {
				t.Errorf("%d endpoints of a name are remembered", rows)
			}
			return err
		})
	})
}

// TestWhatWasLearnedBeforeIdentities: what was stored before it was said what is called is taken over by the first that asks.
func TestWhatWasLearnedBeforeIdentities(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		if err := s.Admission.PauseDeployment(t.Context(), "east", true, Audit{}); err != nil {
			t.Fatal(err)
		}
		for _, identity := range []string{"one", "two"} {
			_, err := transactIn(t.Context(), admissionKey, s.DB.writer, op{stage: stageChange}, func(tx *admissionTx) (struct{}, error) {
				tx.identify(Identities{"east": identity})
				return struct{}{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			h, err := s.Admission.Holding(t.Context())
			if err != nil || h.Deployments["east"] == nil || !h.Deployments["east"].Paused() {
				t.Fatalf("%v: %s is not paused", err, identity)
			}
		}
	})
}

// TestNoIdentityIsOneToo: a process that has no identity for a name keeps what it learned whatever others call by that name,
// also what it took over from before there were identities, which one other process takes over as well.
func TestNoIdentityIsOneToo(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		as := func(identity string, f func(*admissionTx) error) {
			t.Helper()
			_, err := transactIn(t.Context(), admissionKey, s.DB.writer, op{stage: stageChange}, func(tx *admissionTx) (struct{}, error) {
				tx.identify(Identities{"east": identity})
				return struct{}{}, f(tx)
			})
			mustDo(t, err)
		}
		call := func(identity string) {
			t.Helper()
			as(identity, func(tx *admissionTx) error {
				d, err := tx.deployment("east")
				if err == nil {
					d.Reserve(tx.now, quota.Limits{}, quota.Request{})
				}
				return err
			})
		}
		check := func(identity string, calls int64) {
			t.Helper()
			as(identity, func(*admissionTx) error { return nil })
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

		as("", func(tx *admissionTx) error { // as it was stored before there were identities
			return tx.prep("DELETE FROM deployment_states WHERE name = ? AND identity <> ''").text("east").exec()
		})
		as("", func(tx *admissionTx) error {
			return tx.prep("UPDATE deployment_states SET since = 0 WHERE name = ?").text("east").exec()
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
