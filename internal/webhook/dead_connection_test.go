package webhook

import (
	"net/http"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/mutetest"
)

// A connection that has gone dead without a word fails the try that it has, and no other.
func TestDeadConnection(t *testing.T) {
	server := mutetest.Start(t)
	s := newSender(t, SenderOptions{Policy: local(), RootCAs: server.Roots})
	of := s.transport.(*http.Transport).HTTP2
	of.SendPingTimeout, of.PingTimeout = 100*time.Millisecond, 2*time.Second
	for i, want := range []Failure{"", FailedConnection, ""} {
		if i == 1 {
			server.Mute()
		}
		if a := s.Send(t.Context(), endpointAt(server.URL), Message{ID: "e"}); a.Failure != want {
			t.Errorf("try %d: %+v", i+1, a)
		}
	}
}
