package content_test

import (
	"testing"

	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/servicebus/content"
)

// A content type is a symbol, also where a caller of the HTTP API gives one that is none. Clients
// cannot read a message with text in its place.
func TestContentTypeIsASymbol(t *testing.T) {
	t.Parallel()
	m := delivered(message.Content{MessageID: "m", ContentType: "text/plain; title=\u00e9t\u00e9", Body: []byte("x")})
	if got, _ := written(t, m, content.Options{}); got.Properties.ContentType == nil || *got.Properties.ContentType != "text/plain; title=?t?" {
		t.Errorf("the properties are %+v", got.Properties)
	}
}
