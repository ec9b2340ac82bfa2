package bus

import (
	"fmt"
	"testing"

	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// A session is closed, or accepted for the first time, in the transaction in which a message is
// sent to it. The message is there for the next receiver, whichever comes first.
func TestSendBesideOthersOfItsSession(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		q := putQueue(t, s, MessageQueue{RequiresSession: true})
		for round := range 8 {
			id := fmt.Sprint("s", round)
			send := func() error {
				_, err := s.Bus.Send(t.Context(), q, []MessageContent{{MessageID: "m", SessionID: id}})
				return err
			}
			var accepted Session
			accept := func() (err error) {
				accepted, err = s.Bus.Sessions().Accept(t.Context(), q, id)
				return err
			}
			other := accept
			if round%4 < 2 {
				mustDo(t, accept())
				other = func() error { return s.Bus.Sessions().Close(t.Context(), q, accepted.SessionLock) }
			}
			calls := []func() error{other, send}
			if round%2 == 1 {
				calls = []func() error{send, other}
			}
			for _, err := range dbtest.InOneTransaction(t, s.DB, calls...) {
				mustDo(t, err)
			}
			if round%4 < 2 {
				mustDo(t, accept())
			}
			got, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Session: &accepted.SessionLock, Max: 1, MaxBytes: 1 << 20})
			if err != nil || len(got) != 1 {
				t.Errorf("round %d: %d messages (%v)", round, len(got), err)
			}
		}
	})
}
