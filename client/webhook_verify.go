package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// WebhookTolerance is the largest accepted difference between the time of a webhook and the
// receiver's clock. An older webhook may be a replay.
const WebhookTolerance = 5 * time.Minute

// VerifyWebhook returns nil if the request is a webhook signed with this secret, whsec_… (Standard
// Webhooks 1.0.0). body must be the unchanged body. The header webhook-id is the same if an event
// is delivered again, so receivers should remember the ids of processed events.
func VerifyWebhook(header http.Header, body []byte, secret string) error {
	return verifyWebhook(header, body, secret, time.Now())
}

func verifyWebhook(header http.Header, body []byte, secret string, now time.Time) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return forebay.Invalid("secret", "must be whsec_ and bytes in base64")
	}
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" {
		return forebay.Errorf(forebay.CodeUnauthorized, "the webhook headers are missing")
	}
	if off := now.Sub(time.Unix(seconds, 0)); off > WebhookTolerance || off < -WebhookTolerance {
		return forebay.Errorf(forebay.CodeUnauthorized, "the webhook is too old, or from the future")
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	for signature := range strings.FieldsSeq(header.Get("webhook-signature")) {
		encoded, ours := strings.CutPrefix(signature, "v1,")
		got, err := base64.StdEncoding.DecodeString(encoded)
		if ours && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return forebay.Errorf(forebay.CodeUnauthorized, "no signature of the webhook is right")
}
