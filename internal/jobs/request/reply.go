package request

import (
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

// ReplyAddress is where the answer to a job's message goes, as the job's row keeps it in JSON.
type ReplyAddress struct {
	forebay.ReplyTo
	Stored string `json:"stored,omitempty"` // the entity's name in the store, in any case; "": it can have none
}

// maxShownEntity bounds the bytes that are kept of what a message names. A name of an entity is
// shorter.
const maxShownEntity = 512

// EncodeReply returns what a job of the tenant keeps of where its answer goes. nil: nowhere.
func EncodeReply(tenant string, to *forebay.ReplyTo) ([]byte, error) {
	if to == nil {
		return nil, nil
	}
	a := ReplyAddress{ReplyTo: *to}
	if name := entityOf(to.Entity); forebay.ValidEntityName(name) {
		a.Stored = entity.StoredName(tenant, name)
	}
	for len(a.Entity) > maxShownEntity {
		_, last := utf8.DecodeLastRuneInString(a.Entity[:maxShownEntity+1])
		a.Entity = a.Entity[:maxShownEntity+1-last]
	}
	return json.Marshal(a)
}

// DecodeReply returns what EncodeReply encoded.
func DecodeReply(encoded []byte) *ReplyAddress {
	if len(encoded) == 0 { // as most jobs have it
		return nil
	}
	var a ReplyAddress
	if json.Unmarshal(encoded, &a) != nil {
		return nil
	}
	return &a
}

// entityOf returns the name of the entity that a reply_to gives as a relative or an absolute path
// (Service Bus documentation, "service-bus-messages-payloads", reply-to). The host of an absolute
// one is whatever name the sender has for this server.
func entityOf(replyTo string) string {
	if strings.Contains(replyTo, "://") {
		u, err := url.Parse(replyTo)
		if err != nil {
			return ""
		}
		replyTo = u.Path
	}
	return strings.TrimPrefix(replyTo, "/")
}
