package openai

import (
	"net/http"
	"testing"
	"time"
)

// Many clients and proxies give up after a minute without a byte. A call is told before that to
// come again, and a little time is left for the answer.
func TestPatienceEndsBeforeClientsDo(t *testing.T) {
	for _, c := range []struct {
		tier, announced string
		want            time.Duration
	}{
		{"", "", 50 * time.Second}, {"priority", "", 50 * time.Second}, {"flex", "", 4 * time.Minute},
		{"", "600", 50 * time.Second}, {"", "30", 15 * time.Second}, {"flex", "60", 30 * time.Second}, {"", "-1", 50 * time.Second},
	} {
		if got := (request{tier: c.tier}).patience(http.Header{"X-Stainless-Timeout": {c.announced}}); got != c.want {
			t.Errorf("%q, announced %q: %s", c.tier, c.announced, got)
		}
	}
}
