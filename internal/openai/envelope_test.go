package openai

import (
	"net/http"
	"testing"
)

// A provider's error comes back as it is if it has the keys that SDKs read, and else with them.
func TestErrorOfAProviderIsWhole(t *testing.T) {
	t.Parallel()
	f := &failure{status: http.StatusNotFound, kind: typeInvalid, message: "the provider refused it"}
	for body, want := range map[string]string{
		`{ "error": {"message":"m", "type":"t", "param":null, "code":"c", "innererror":{"n":18446744073709551616}} }`: `{ "error": {"message":"m", "type":"t", "param":null, "code":"c", "innererror":{"n":18446744073709551616}} }`,
		`{"error":{"message":"m","type":"t","code":"c","more":18446744073709551616},"also":1.0}`:                      `{"also":1.0,"error":{"code":"c","message":"m","more":18446744073709551616,"param":null,"type":"t"}}`,
		`{"error":{"message":"m","type":"BadRequestError","param":null,"code":400}}`:                                  `{"error":{"code":"400","message":"m","param":null,"type":"BadRequestError"}}`,
		`{"error":{"message":null,"code":{"a":1},"param":5}}`:                                                         `{"error":{"code":null,"message":"the provider refused it","param":null,"type":"invalid_request_error"}}`,
		`{"error":"m"}`:   `{"error":{"code":null,"message":"m","param":null,"type":"invalid_request_error"}}`,
		`{"error":""}`:    `{"error":{"code":null,"message":"","param":null,"type":"invalid_request_error"}}`,
		`{"error":null}`:  "",
		`{"error":[1]}`:   "",
		`{"error":true}`:  "",
		`{"detail":"m"}`:  "",
		`"error"`:         "",
		`{"error":{"mes`:  "",
		`<html>no</html>`: "",
		``:                "",
	} {
		if got := string(f.whole([]byte(body))); got != want {
			t.Errorf("%s became %s, not %s", body, got, want)
		}
	}
}

// An overload has a status of Anthropic's own, and its own type of error.
func TestMessagesErrorOfAnOverload(t *testing.T) {
	t.Parallel()
	const want = `{"error":{"message":"m","type":"overloaded_error"},"request_id":"r","type":"error"}`
	if got := string(messagesError(&failure{status: 529, message: "m"}, "r")); got != want {
		t.Errorf("%s", got)
	}
}
