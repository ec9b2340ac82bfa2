package bus

import (
	"errors"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/panics"
)

// panicking is a gate that panics.
type panicking struct{}

func (panicking) TakeFor(*Tx, *Receiver, Source) error { panic("gate") }

// A panic while a receiver is being served ends its wait.
func TestAPanicEndsTheReceiverThatIsServed(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		q, _, err := s.Bus.PutMessageQueue(t.Context(), MessageQueue{Tenant: tenantOf(t, s, "t"), Name: "t/q", Lock: time.Minute, MaxDeliveries: 3}, 10)
		mustDo(t, err)
		Key.In(s.DB.Writer).Webhooks = panicking{}
		ended := make(chan error, 1)
		go func() {
			_, err := s.Bus.Receive(t.Context(), ReceiveRequest{Queue: q, Max: 1, MaxBytes: 1, Wait: true, Webhook: true})
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, panics.ErrPanicked) {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the receiver waits for ever")
		}
	})
}
