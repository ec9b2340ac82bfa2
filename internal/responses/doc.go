// Package responses keeps responses of OpenAI's API: those that are stored, and those that are
// made in the background.
//
// # Background
//
// A background response is a row and a job that share a transaction. The job's task reads the
// request, finds the context that goes before it, and calls a provider for a stream. The events of
// the response go to rows in groups, as they come. Whoever follows the stream reads these rows,
// on any process, and waits for the job to change.
//
// Only one attempt writes events: the latest that began. It has put a number of its own into the
// row, and each group names it, and says after which event it goes. So a late attempt, and one
// whose response was cancelled, changes nothing. The end of a response is written once, together
// with its last events. A later attempt of the job finds it and has nothing to do.
//
// An attempt after a crash goes on with the next sequence number. An item that the earlier one had
// begun is closed as incomplete, and the new items come after it. The response has only these.
//
// A job that ends without success ends its response in the same transaction. The event that ends a
// stream is not stored: it follows from the row, as do the events that hold the whole response.
//
// # Removal
//
// A deleted or expired response is invisible at once. [Service.Run] removes its rows in small
// transactions, and its blobs.
package responses

import (
	"strings"

	"github.com/forebayhq/forebay/internal/model"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

// FailureCode returns the code that a failed response has for the error of a call.
func FailureCode(code string) string {
	switch code {
	case model.CodeRateLimited, bridge.CodeRateLimit:
		return bridge.CodeRateLimit
	case model.CodeBadRequest, model.CodeContentFilter, bridge.CodeInvalidPrompt:
		return bridge.CodeInvalidPrompt
	}
	return bridge.CodeServerError
}

// knownID reports whether id could be a response's.
func knownID(id string) bool {
	rest, ok := strings.CutPrefix(id, bridge.IDPrefix)
	return ok && len(rest) == 26 && strings.Trim(rest, "0123456789abcdefghjkmnpqrstvwxyz") == ""
}
