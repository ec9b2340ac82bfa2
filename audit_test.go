package forebay

import (
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/raced"
)

// The hash is part of the contract: a log that was checked once must be found good for ever.
func TestAuditHash(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	e := AuditEntry{Number: 1, At: time.UnixMilli(1700000000123), Tenant: "acme", Actor: "key_1", Action: "pause", Target: "default", Detail: "é",
		PreviousHash: NoAuditHash}
	const want = "d3192b3a58a4ca29e7972cc9166e0fd77e3dea4e7ef9e92e055f52f65d32621b" // computed by another program
	if got := e.ComputeHash(); got != want {
		t.Errorf("got %s", got)
	}
	e.At = e.At.In(time.FixedZone("x", 3600))
	if e.ComputeHash() != want {
		t.Error("the zone of the time matters")
	}
	for name, change := range map[string]func(*AuditEntry){
		"number": func(e *AuditEntry) { e.Number++ }, "time": func(e *AuditEntry) { e.At = e.At.Add(time.Millisecond) },
		"border": func(e *AuditEntry) { e.Tenant, e.Actor = "acmek", "ey_1" }, "detail": func(e *AuditEntry) { e.Detail = "" },
		"link": func(e *AuditEntry) { e.PreviousHash = strings.Repeat("f", 64) },
	} {
		changed := e
		change(&changed)
		if got := changed.ComputeHash(); got == want || len(got) != 64 {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, link := range []string{"", "00", "zz" + NoAuditHash[2:]} {
		e.PreviousHash = link
		if got := e.ComputeHash(); got != "" {
			t.Errorf("previous hash %q: %s", link, got)
		}
	}
}

func TestAuditHead(t *testing.T) {
	raced.Skip(t, raced.Sequential)
	hash := strings.Repeat("ab", 32)
	for s, want := range map[string]AuditHead{
		"": {}, "0:" + NoAuditHash: {}, "7:" + hash: {7, hash}, "7:" + strings.ToUpper(hash): {7, hash},
	} {
		got, err := ParseAuditHead(s)
		if err != nil || got != want {
			t.Errorf("%q: %+v (%v)", s, got, err)
		}
		if again, err := ParseAuditHead(got.String()); err != nil || again != got {
			t.Errorf("%q is written %q", s, got)
		}
	}
	for _, s := range []string{"7", "7:", ":" + hash, "0:" + hash, "-1:" + hash, "7:" + hash[1:], "7:" + hash + "00", "x:" + hash, "7:x" + hash[1:], "99999999999999999999:" + hash} {
		if got, err := ParseAuditHead(s); CodeOf(err) != CodeInvalidRequest {
			t.Errorf("%q: %+v (%v)", s, got, err)
		}
	}
}
