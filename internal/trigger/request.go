package trigger

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/jsoncheck"
)

// maxDeadline is how far ahead a message's expiry counts as its job's deadline. A deadline may be
// ten years ahead, an expiry a hundred.
const maxDeadline = 9 * 365 * 24 * time.Hour

// request returns the job for a message, and a fingerprint of the message. A message that is sent
// again has the same fingerprint, whatever its times.
func (k *Maker) request(m *forebay.Message) (req forebay.SubmitRequest, fingerprint []byte, err error) {
	req = forebay.SubmitRequest{Task: k.Task, Queue: k.Queue, IdempotencyKey: k.key(m.MessageID)}
	if req.Task == "" {
		req.Task = m.Subject
	}
	if req.Input, err = input(m); err != nil {
		return req, nil, err
	}
	if m.CorrelationID != "" {
		req.CorrelationID = &m.CorrelationID
	}
	if m.ReplyTo != "" {
		req.ReplyTo = &forebay.ReplyTo{Entity: m.ReplyTo, SessionID: m.ReplyToSessionID, CorrelationID: m.MessageID}
	}
	if m.SessionID != "" {
		req.SessionID = &m.SessionID
	}
	if at := m.ExpiresAt; at != nil && time.Until(*at) < maxDeadline {
		req.Deadline = at
	}
	if len(m.Properties) > 0 {
		req.Metadata = make(map[string]string, len(m.Properties))
		for name, value := range m.Properties {
			req.Metadata[name] = format(value)
		}
	}
	sent := m.NewMessage
	sent.ScheduledTime = nil
	b, err := json.Marshal(sent)
	if err != nil {
		return req, nil, err
	}
	sum := sha256.Sum256(b)
	return req, sum[:], nil
}

// key returns the job's idempotency key: "<source>/<message id>". An id that is too long for a key
// is hashed.
func (k *Maker) key(messageID string) string {
	prefix := k.Source + "/"
	if len(prefix)+len(messageID) > forebay.MaxIdempotencyKeyBytes {
		sum := sha256.Sum256([]byte(messageID))
		messageID = "sha256:" + hex.EncodeToString(sum[:])
	}
	return prefix + messageID
}

func bodyBytes(m *forebay.Message) int {
	if m.Body != nil {
		return len(*m.Body)
	}
	return len(m.BodyBase64)
}

// input returns the message's body: as it is if it is JSON, otherwise as a JSON string.
func input(m *forebay.Message) (json.RawMessage, error) {
	body := m.BodyBase64
	if m.Body != nil {
		body = []byte(*m.Body)
	}
	if isJSON(m.ContentType) {
		return body, jsoncheck.Check("body", body)
	}
	if !utf8.Valid(body) {
		return nil, forebay.Invalid("body", "is neither text nor, by its content type, JSON")
	}
	return json.Marshal(string(body))
}

// isJSON reports whether the content type is JSON, or built on it (RFC 6839, section 3.1).
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// format writes a property as text, the same as in the JSON of typed properties.
func format(value any) string {
	switch v := value.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	}
	return fmt.Sprint(value) // strings, numbers, booleans and UUIDs
}
