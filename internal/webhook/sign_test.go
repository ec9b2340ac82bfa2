package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// The vector that the libraries of the specification are tested with.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestVector(t *testing.T) {
	header := http.Header{}
	err := setSignature(header, []SigningSecret{{Secret: vectorSecret}}, vectorID, time.Unix(vectorTime, 999), []byte(vectorBody))
	if err != nil {
		t.Fatal(err)
	}
	if header.Get(HeaderID) != vectorID || header.Get(HeaderTimestamp) != strconv.Itoa(vectorTime) || header.Get(HeaderSignature) != vectorSignature {
		t.Errorf("got %v", header)
	}
}

// verify is a receiver as the documentation describes one.
func verify(secret forebay.Secret, header http.Header, body string) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.Reveal(), "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(header.Get("webhook-id") + "." + header.Get("webhook-timestamp") + "." + body))
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return slices.Contains(strings.Fields(header.Get("webhook-signature")), want)
}

// During a rotation both secrets sign, and the old one no longer does from its end on.
func TestRotation(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	current, old := NewSecret(), NewSecret()
	for _, c := range []struct {
		until    time.Time
		oldSigns bool
	}{{at.Add(time.Second), true}, {at, false}, {at.Add(-time.Hour), false}} {
		header := http.Header{}
		if err := setSignature(header, []SigningSecret{{Secret: current}, {Secret: old, Until: c.until}}, "e", at, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if !verify(current, header, "x") || verify(old, header, "x") != c.oldSigns || verify(current, header, "y") || verify(NewSecret(), header, "x") {
			t.Errorf("until %v: %v", c.until, header)
		}
	}
	if err := setSignature(http.Header{}, []SigningSecret{{Secret: old, Until: at}}, "e", at, nil); err == nil {
		t.Error("signed with a secret that has ended")
	}
}

func TestParseSecret(t *testing.T) {
	encoded := func(n int) forebay.Secret {
		return forebay.Secret("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)))
	}
	for secret, valid := range map[forebay.Secret]bool{
		vectorSecret: true, encoded(24): true, encoded(64): true, NewSecret(): true,
		encoded(23): false, encoded(65): false, "": false, "whsec_": false, "whsec_!!!!": false, encoded(32)[6:]: false,
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2La\nLaSw": false, "whsec_" + forebay.Secret(strings.Repeat("_", 32)): false,
	} {
		key, err := ParseSecret(secret)
		if (err == nil) != valid || valid && len(key) < 24 {
			t.Errorf("%q: %v", secret.Reveal(), err)
		}
		if err != nil && len(secret) > 10 && strings.Contains(err.Error(), secret.Reveal()[6:]) {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
	if one, other := NewSecret(), NewSecret(); one == other {
		t.Error("two secrets are the same")
	}
}

// An id is replaced if it could not stand in the header, or could be mistaken for another part of
// what is signed. The replacement is always the same.
func TestDeliveryID(t *testing.T) {
	for id, same := range map[string]bool{
		"evt_1-A:x": true, strings.Repeat("a", 128): true,
		"": false, "a.b": false, "a b": false, "a\nb": false, "é": false, strings.Repeat("a", 129): false,
	} {
		got := deliveryID(id)
		if (got == id) != same || got != deliveryID(id) || deliveryID(got) != got {
			t.Errorf("%q becomes %q", id, got)
		}
	}
	if deliveryID("a.b") == deliveryID("a.c") {
		t.Error("two ids become one")
	}
}
