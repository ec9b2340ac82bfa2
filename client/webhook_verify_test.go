package client

import (
	"net/http"
	"testing"
	"time"

	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/toolchain"
	"os"
	"os/exec"
	"strconv"
	"strings"
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

// The receiver in Python that the guide shows does what VerifyWebhook does, also with what
// somebody else sends.
func TestGuidesPythonVerification(t *testing.T) {
	guide, err := os.ReadFile("../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(guide), "```python\nimport base64, hashlib, hmac, time\n")
	program, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("the guide has no such program")
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	key, body := "c2VjcmV0LXNlY3JldC1zZWNyZXQ=", `{"type":"succeeded"}`
	sign := func(id, at string) string {
		secret, err := base64.StdEncoding.DecodeString(key)
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + at + "." + body))
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	cases := []struct {
		headers map[string]string
		want    bool
	}{
		{map[string]string{"webhook-id": "m", "webhook-timestamp": now, "webhook-signature": "v1,AAAA " + sign("m", now)}, true},
		{map[string]string{"webhook-id": "n", "webhook-timestamp": now, "webhook-signature": sign("m", now)}, false},
		{map[string]string{"webhook-id": "m", "webhook-timestamp": "1", "webhook-signature": sign("m", "1")}, false},
		{map[string]string{"webhook-id": "m", "webhook-timestamp": "soon", "webhook-signature": sign("m", "soon")}, false},
		{map[string]string{"webhook-id": "m", "webhook-timestamp": now}, false},
		{map[string]string{"webhook-id": "m", "webhook-timestamp": now, "webhook-signature": "v1,é " + sign("m", now)}, true},
		{map[string]string{"webhook-id": "m", "webhook-timestamp": now, "webhook-signature": "é"}, false},
		{map[string]string{"webhook-id": "m", "webhook-timestamp": strings.Repeat("9", 5000)}, false},
		{map[string]string{}, false},
	}
	program = "import base64, hashlib, hmac, time, json, sys\n" + program + "\nfor headers in json.loads(sys.argv[1]):\n    print(verify(sys.argv[2], headers, sys.argv[3].encode()))\n"
	var all []map[string]string
	want := ""
	for _, c := range cases {
		all = append(all, c.headers)
		want += map[bool]string{true: "True\n", false: "False\n"}[c.want]
	}
	headers, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	toolchain.Need(t, toolchain.Python())
	out, err := exec.CommandContext(t.Context(), "python3", "-c", program, string(headers), "whsec_"+key, body).CombinedOutput()
	if err != nil || string(out) != want {
		t.Errorf("%v: it says\n%swant\n%s", err, out, want)
	}
}
