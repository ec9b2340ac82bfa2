package dashboardtest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// Must returns the value of a call that may not fail.
func Must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Peek returns all messages of an entity.
func Peek(t testing.TB, c *client.Client, entity string) (all []forebay.Message) {
	t.Helper()
	for m, err := range c.Messages(entity).Peek(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// Letters sends three messages. It dead-letters two of them where they arrive, and returns the
// number of the other.
func Letters(t *testing.T, c *client.Client, send func(context.Context, ...forebay.NewMessage) ([]forebay.SentMessage, error), arrive string) (number string) {
	t.Helper()
	body := `{"order": 7, "note": "` + strings.Repeat("long ", 40) + `"}`
	for i := range 3 {
		Must[[]forebay.SentMessage](t)(send(t.Context(), forebay.NewMessage{Subject: fmt.Sprintf("letter %d", i), Body: &body, ContentType: "application/json",
			Properties: forebay.Properties{"quantity": int64(11 + i)}}))
	}
	for _, got := range Must[[]forebay.Message](t)(c.Messages(arrive).Receive(t.Context(), forebay.ReceiveRequest{MaxMessages: 2})) {
		if err := c.Messages(arrive).DeadLetter(t.Context(), got.LockToken, forebay.Settlement{Reason: "unreadable", Description: "the letter cannot be read"}); err != nil {
			t.Fatal(err)
		}
	}
	return strconv.FormatInt(Peek(t, c, arrive)[0].SequenceNumber, 10)
}
