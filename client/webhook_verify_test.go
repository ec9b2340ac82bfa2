package client

import (
	"net/http"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

// The vector that the libraries of the specification are tested with.
func TestVerifyWebhook(t *testing.T) {
	const secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", `{"test": 2432232314}`
	at := time.Unix(1614265330, 0)
	good := map[string]string{"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
		"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}
	for name, c := range map[string]struct {
		header, value, body string
		now                 time.Time
		secret              string
		code                forebay.Code // "": it is verified
	}{
		"good":                 {"", "", body, at, secret, ""},
		"without the prefix":   {"", "", body, at, secret[6:], ""},
		"a little late":        {"", "", body, at.Add(WebhookTolerance), secret, ""},
		"a little early":       {"", "", body, at.Add(-WebhookTolerance), secret, ""},
		"another first":        {"webhook-signature", "v1,AAAA v1a,xx v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", body, at, secret, ""},
		"late":                 {"", "", body, at.Add(WebhookTolerance + time.Second), secret, forebay.CodeUnauthorized},
		"from the future":      {"", "", body, at.Add(-WebhookTolerance - time.Second), secret, forebay.CodeUnauthorized},
		"another body":         {"", "", `{"test":2432232314}`, at, secret, forebay.CodeUnauthorized},
		"another id":           {"webhook-id", "msg_1", body, at, secret, forebay.CodeUnauthorized},
		"another time":         {"webhook-timestamp", "1614265331", body, at, secret, forebay.CodeUnauthorized},
		"no id":                {"webhook-id", "", body, at, secret, forebay.CodeUnauthorized},
		"no time":              {"webhook-timestamp", "", body, at, secret, forebay.CodeUnauthorized},
		"no signature":         {"webhook-signature", "", body, at, secret, forebay.CodeUnauthorized},
		"another version":      {"webhook-signature", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", body, at, secret, forebay.CodeUnauthorized},
		"another secret":       {"", "", body, at, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx", forebay.CodeUnauthorized},
		"an empty secret":      {"", "", body, at, "whsec_", forebay.CodeInvalidRequest},
		"a secret of no shape": {"", "", body, at, "whsec_!", forebay.CodeInvalidRequest},
	} {
		header := http.Header{}
		for key, value := range good {
			header.Set(key, value)
		}
		if c.header != "" {
			header.Set(c.header, c.value)
		}
		err := verifyWebhook(header, []byte(c.body), c.secret, c.now)
		if (err == nil) != (c.code == "") || err != nil && forebay.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}
