package azurebus

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// A lock that cannot be renewed now is not given up, and does not take the others with it.
func TestKeepAll(t *testing.T) {
	lost, failed := &azservicebus.Error{Code: azservicebus.CodeLockLost}, errors.New("the network is down")
	answers := map[string]error{"kept": nil, "lost": lost, "failed": failed, "kept too": nil}
	l := &link{renew: func(_ context.Context, m *azservicebus.ReceivedMessage) (time.Time, error) {
		return time.Now().Add(time.Minute), answers[m.MessageID]
	}}
	var held []delivery
	for _, id := range []string{"kept", "lost", "failed", "kept too"} {
		held = append(held, delivery{ReceivedMessage: &azservicebus.ReceivedMessage{MessageID: id}})
	}
	kept, err := l.keepAll(t.Context(), held)
	var ids []string
	for _, d := range kept {
		ids = append(ids, d.MessageID)
	}
	if !errors.Is(err, failed) || errors.Is(err, lost) || !slices.Equal(ids, []string{"kept", "failed", "kept too"}) {
		t.Errorf("kept %v: %v", ids, err)
	}
}

// The address of a reply names an entity in Azure, so nothing here is sent there.
func TestRepliesStayInAzure(t *testing.T) {
	to := "orders"
	if m := plain(&azservicebus.ReceivedMessage{MessageID: "1", ReplyTo: &to, ReplyToSessionID: &to}); m.ReplyTo != "" || m.ReplyToSessionID != "" || m.MessageID != "1" {
		t.Errorf("%+v", m)
	}
}
