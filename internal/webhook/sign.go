package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// The headers of a delivery (Standard Webhooks, "Webhook headers").
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

const (
	secretPrefix    = "whsec_"
	signaturePrefix = "v1,"

	// The specification asks for 24 to 64 random bytes.
	minSecretBytes = 24
	maxSecretBytes = 64
	newSecretBytes = 32

	maxIDBytes = 128 // of a webhook-id
)

// NewSecret makes a signing secret.
func NewSecret() forebay.Secret {
	var key [newSecretBytes]byte
	rand.Read(key[:])
	return forebay.Secret(secretPrefix + base64.StdEncoding.EncodeToString(key[:]))
}

// ParseSecret returns the key in a secret of the form whsec_<base64>. The error does not quote it.
func ParseSecret(secret forebay.Secret) ([]byte, error) {
	encoded, ok := strings.CutPrefix(secret.Reveal(), secretPrefix)
	if !ok || strings.ContainsAny(encoded, "\r\n") {
		return nil, forebay.Invalid("secret", "must be whsec_ followed by %d to %d bytes in base64", minSecretBytes, maxSecretBytes)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return nil, forebay.Invalid("secret", "must be whsec_ followed by %d to %d bytes in base64", minSecretBytes, maxSecretBytes)
	}
	return key, nil
}

// sign returns the signature of one delivery under one key: the HMAC of "id.timestamp.body".
func sign(key []byte, id string, timestamp int64, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(timestamp, 10) + "."))
	mac.Write(body)
	return signaturePrefix + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// setSignature adds the three headers. Every secret that is valid at that time signs.
func setSignature(header http.Header, secrets []SigningSecret, id string, at time.Time, body []byte) error {
	var signatures []string
	for _, s := range secrets {
		if !s.Until.IsZero() && !at.Before(s.Until) {
			continue
		}
		key, err := ParseSecret(s.Secret)
		if err != nil {
			return err
		}
		signatures = append(signatures, sign(key, id, at.Unix(), body))
	}
	if len(signatures) == 0 {
		return forebay.Invalid("secrets", "none is valid")
	}
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(HeaderSignature, strings.Join(signatures, " "))
	return nil
}

// deliveryID is the webhook-id of a message. It is the message's own id if that can stand in a
// header and holds no dot, since dots separate what is signed. Otherwise it is a digest of the
// id. It is the same on every try.
func deliveryID(messageID string) string {
	fits := messageID != "" && len(messageID) <= maxIDBytes
	for i := 0; i < len(messageID) && fits; i++ {
		c := messageID[i]
		fits = c > ' ' && c < 0x7f && c != '.'
	}
	if fits {
		return messageID
	}
	digest := sha256.Sum256([]byte(messageID))
	return "msg_" + hex.EncodeToString(digest[:16])
}
