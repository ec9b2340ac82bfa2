package api_test

import (
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestMessageInput(t *testing.T) {
	f := newFixture(t)
	f.putQueue(orders, ``)
	large := strings.Repeat("x", forebay.MaxPropertyBytes)
	m := forebay.Message{LockToken: "AAAAAAAAAAEAAAAAAAAAAQ"}
	for _, c := range []struct {
		method, path, body string
		status             int
		code               forebay.Code
		field              string
	}{
		{"PUT", "/v1/queues/-x", `{}`, 422, forebay.CodeInvalidRequest, "queue"},
		{"PUT", orders, `{"lock_seconds":0.5}`, 422, forebay.CodeInvalidRequest, "lock_seconds"},
		{"PUT", orders, `{"lock_seconds":301}`, 422, forebay.CodeInvalidRequest, "lock_seconds"},
		{"PUT", orders, `{"max_delivery_count":-1}`, 422, forebay.CodeInvalidRequest, "max_delivery_count"},
		{"PUT", orders, `{"LOCK_SECONDS":5,"lock_seconds":7}`, 422, forebay.CodeUnknownField, "LOCK_SECONDS"},
		{"PUT", orders, `{"lock_seconds":5,"lock_seconds":7}`, 422, forebay.CodeInvalidRequest, "lock_seconds"},
		{"PUT", orders, `{"lock":1}`, 422, forebay.CodeUnknownField, "lock"},
		{"POST", orders + "/messages", ``, 400, forebay.CodeInvalidJSON, "body"},
		{"POST", orders + "/messages", `{"body":1}`, 422, forebay.CodeInvalidRequest, "body"},
		{"POST", orders + "/messages", `{"body":"a","body_base64":"YQ=="}`, 422, forebay.CodeInvalidRequest, "body"},
		{"POST", orders + "/messages", `{"body_base64":"*"}`, 422, forebay.CodeInvalidRequest, "body_base64"},
		{"POST", orders + "/messages", `{"body":"\ud800"}`, 422, forebay.CodeInvalidRequest, "body"},
		{"POST", orders + "/messages", `{"application_properties":{"a":"\ud83dx"}}`, 422, forebay.CodeInvalidRequest, "application_properties"},
		{"POST", orders + "/messages", `{"application_properties":{"a":1,"a":2}}`, 422, forebay.CodeInvalidRequest, "application_properties.a"},
		{"POST", orders + "/messages", `{"messages":[{},{"body":1}]}`, 422, forebay.CodeInvalidRequest, "messages[1].body"},
		{"POST", orders + "/messages", `{"messages":[{},{"bodi":"x"}]}`, 422, forebay.CodeUnknownField, "messages[1].bodi"},
		{"POST", orders + "/messages", `{"messages":[{},null]}`, 422, forebay.CodeInvalidRequest, "messages[1]"},
		{"POST", orders + "/messages", `{"messages":[{},{"application_properties":{"a":null}}]}`, 422, forebay.CodeInvalidRequest, "messages[1].application_properties.a"},
		{"POST", orders + "/messages", `{"messages":[]}`, 422, forebay.CodeInvalidRequest, "messages"},
		{"POST", orders + "/messages", `{"body":"x","messages":[{}]}`, 422, forebay.CodeInvalidRequest, "messages"},
		{"POST", orders + "/messages", `{"messages":[` + strings.Repeat(`{},`, 100) + `{}]}`, 422, forebay.CodeInvalidRequest, "messages"},
		{"POST", orders + "/messages", `{"messages":[{},{"message_id":"` + strings.Repeat("x", 129) + `"}]}`, 422, forebay.CodeInvalidRequest, "messages[1].message_id"},
		{"POST", orders + "/messages", `{"subject":"a\nb"}`, 422, forebay.CodeInvalidRequest, "subject"},
		{"POST", orders + "/messages", `{"body":"` + strings.Repeat("x", forebay.DefaultMaxMessageBytes) + `"}`, 413, forebay.CodePayloadTooLarge, "body"},
		{"POST", orders + "/messages", `{"application_properties":{"a":"` + large + `"}}`, 413, forebay.CodePayloadTooLarge, "application_properties.a"},
		{"POST", orders + "/messages", `{"application_properties":{"a":null}}`, 422, forebay.CodeInvalidRequest, "application_properties.a"},
		{"POST", orders + "/messages", `{"application_properties":{"a":{"type":"date","value":"x"}}}`, 422, forebay.CodeInvalidRequest, "application_properties.a"},
		{"POST", orders + "/messages", `{"application_properties":{"a":{"type":"int","value":"1.5"}}}`, 422, forebay.CodeInvalidRequest, "application_properties.a"},
		{"POST", orders + "/messages", `{"application_properties":{"a":99999999999999999999}}`, 422, forebay.CodeInvalidRequest, "application_properties.a"},
		{"POST", orders + "/messages", `{"application_properties":{"":1}}`, 422, forebay.CodeInvalidRequest, "application_properties"},
		{"POST", orders + "/messages/receive", `{"max_messages":101}`, 422, forebay.CodeInvalidRequest, "max_messages"},
		{"POST", orders + "/messages/receive", `{"wait_seconds":61}`, 422, forebay.CodeInvalidRequest, "wait_seconds"},
		{"POST", orders + "/messages/receive", `{"wait":"61s"}`, 422, forebay.CodeInvalidRequest, "wait"},
		{"POST", orders + "/messages/receive", `{"wait":"20"}`, 422, forebay.CodeInvalidRequest, "wait"},
		{"POST", orders + "/messages/receive", `{"wait":"20s","wait_seconds":20}`, 422, forebay.CodeInvalidRequest, "wait_seconds"},
		{"POST", orders + "/messages/receive", `{"wait_seconds":-1}`, 422, forebay.CodeInvalidRequest, "wait_seconds"},
		{"POST", orders + "/messages/receive", `{"mode":"peek"}`, 422, forebay.CodeInvalidRequest, "mode"},
		{"POST", orders + "/messages/receive", `{"deferred_sequence_numbers":[]}`, 422, forebay.CodeInvalidRequest, "deferred_sequence_numbers"},
		{"POST", orders + "/messages/receive", `{"deferred_sequence_numbers":[1],"max_messages":1}`, 422, forebay.CodeInvalidRequest, "deferred_sequence_numbers"},
		{"POST", "/v1/queues/none/messages/receive", `{}`, 404, forebay.CodeUnknownQueue, "queue"},
		{"GET", orders + "/messages?cursor=x", ``, 422, forebay.CodeInvalidCursor, "cursor"},
		{"GET", orders + "/messages?cursor=-1", ``, 422, forebay.CodeInvalidCursor, "cursor"},
		{"GET", orders + "/messages?cursor=1&from_sequence_number=1", ``, 422, forebay.CodeInvalidRequest, "cursor"},
		{"POST", orders + "/messages", `{"application_properties":{"a":{"TYPE":"int","value":"1"}}}`, 422, forebay.CodeInvalidRequest, "application_properties.a"},
		{"GET", orders + "/messages?limit=101", ``, 422, forebay.CodeInvalidRequest, "limit"},
		{"GET", orders + "/messages?from_sequence_number=-1", ``, 422, forebay.CodeInvalidRequest, "from_sequence_number"},
		{"POST", orders + "/locks/" + m.LockToken + "/complete", `{"reason":"x"}`, 422, forebay.CodeInvalidRequest, "body"},
		{"POST", orders + "/locks/" + m.LockToken + "/renew", `{"seconds":5}`, 422, forebay.CodeInvalidRequest, "body"},
		{"POST", orders + "/locks/" + m.LockToken + "/complete", ` { } `, 409, forebay.CodeLockLost, ""},
		{"POST", orders + "/locks/x/complete", ``, 422, forebay.CodeInvalidRequest, "lock_token"},
		{"POST", orders + "/locks/" + m.LockToken[:21] + "R/complete", ``, 422, forebay.CodeInvalidRequest, "lock_token"},
		{"POST", orders + "/locks/" + m.LockToken + "/complete", ``, 409, forebay.CodeLockLost, ""},
		{"POST", orders + "/locks/" + m.LockToken + "/abandon", `{"reason":"x"}`, 422, forebay.CodeUnknownField, "reason"},
		{"POST", orders + "/locks/" + m.LockToken + "/dead-letter", `{"reason":"` + strings.Repeat("x", 4097) + `"}`, 422, forebay.CodeInvalidRequest, "reason"},
	} {
		p := wantProblem(t, f.do(c.method, c.path, c.body), c.status, c.code)
		if p.Field != c.field {
			t.Errorf("%s %s %.60s: field %q, want %q", c.method, c.path, c.body, p.Field, c.field)
		}
	}

	// Properties that are too large only together with the message's own change nothing.
	half := strings.Repeat("x", 30<<10)
	f.sendMessage(orders, `{"application_properties":{"a":"`+half+`","b":"`+half+`"}}`)
	got := f.receiveOne(orders, ``)
	wantProblem(t, f.settleMessage(orders, got, "abandon", `{"application_properties":{"c":"`+half+`"}}`), 413, forebay.CodePayloadTooLarge)
	f.wantSettled(orders, got, "complete", "")
}
