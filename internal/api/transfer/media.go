package transfer

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
)

// Media types that bodies may have. The first is the one that answers have.
var (
	JSON   = []string{"application/json"}
	NDJSON = []string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/json-lines"}
)

// CheckContentType reports a body that is compressed or is not one of the media types. A body
// without a content type is accepted.
func CheckContentType(h http.Header, types []string) error {
	if err := CheckEncoding(h); err != nil {
		return err
	}
	sent := h.Get("Content-Type")
	if sent == "" {
		return nil
	}
	mediaType, params, err := mime.ParseMediaType(sent)
	charset, hasCharset := params["charset"]
	if err == nil && (!hasCharset || strings.EqualFold(charset, "utf-8")) && slices.Contains(types, mediaType) {
		return nil
	}
	return forebay.Errorf(forebay.CodeUnsupportedMedia, "the Content-Type must be %s", types[0])
}

// IdempotencyKey returns the Idempotency-Key of a request, or "" if it has none. One that is empty
// is refused: its client believes that repeats are safe.
func IdempotencyKey(h http.Header) (string, error) {
	key := h.Get("Idempotency-Key")
	if key == "" && len(h.Values("Idempotency-Key")) > 0 {
		return "", forebay.Invalid("Idempotency-Key", "is empty; send 1 to %d bytes, or leave the header out", forebay.MaxIdempotencyKeyBytes)
	}
	return key, nil
}

// CheckEncoding reports a body that is compressed.
func CheckEncoding(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return forebay.Errorf(forebay.CodeUnsupportedMedia, "the body must not be compressed (Content-Encoding)")
	}
	return nil
}
