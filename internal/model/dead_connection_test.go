package model

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/mutetest"
)

// A connection that has gone dead without a word does not fail the calls that come later.
func TestDeadConnection(t *testing.T) {
	server := mutetest.Start(t)
	transport := sharedTransport.Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: server.Roots}
	transport.HTTP2.SendPingTimeout, transport.HTTP2.PingTimeout = 100*time.Millisecond, 2*time.Second
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for i, fails := range []bool{false, true, false} {
		if i == 1 {
			server.Mute()
		}
		resp, err := client.Get(server.URL)
		if (err != nil) != fails {
			t.Errorf("call %d: %v", i+1, err)
		}
		if err == nil {
			if resp.Body.Close(); resp.ProtoMajor != 2 {
				t.Errorf("it is %s", resp.Proto)
			}
		}
	}
}
