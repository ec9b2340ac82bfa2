package atom

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// failure is an error of the protocol: a status, the number behind it, and words that clients look
// for (Service Bus documentation, "service-bus-resource-manager-exceptions").
type failure struct {
	status int
	text   string
}

func (f *failure) Error() string { return f.text }

func failed(status, subcode int, format string, args ...any) *failure {
	return &failure{status, fmt.Sprintf("SubCode=%d. ", subcode) + fmt.Sprintf(format, args...)}
}

// unauthorized has a text of its own for each kind of request.
func unauthorized(format string, args ...any) *failure {
	return &failure{http.StatusUnauthorized, fmt.Sprintf(format, args...)}
}

// The words of the service. Microsoft's own tests of its clients look for some of them.
const (
	textExists   = "Conflict. You're requesting an operation that isn't allowed in the resource's current state."
	textNotFound = "Not Found. The Operation doesn't exist: "
)

// isFull reports whether the error says that there is no room for another entity or message.
func isFull(code forebay.Code) bool {
	return code == forebay.CodeTenantLimit || code == forebay.CodeStorageFull
}

// failureOf translates an error. Errors that are none of Forebay's own say nothing.
func failureOf(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	var e *forebay.Error
	if !errors.As(err, &e) {
		return failed(http.StatusInternalServerError, 50000, "Internal Server Error.")
	}
	switch code := e.Code; {
	case errors.Is(err, ErrExists) && e.Field == ErrExists.Field:
		return failed(http.StatusConflict, 40900, "%s", textExists)
	case code == forebay.CodeConflict && e.Field != "": // a setting that cannot change
		return failed(http.StatusBadRequest, 40000, "Bad Request. %s %s", e.Field, sentence(e.Message))
	case code == forebay.CodeConflict, isFull(code): // as many entities as there may be
		return failed(http.StatusForbidden, 40300, "Quota exceeded. %s.", e.Message)
	case code == forebay.CodeNotFound, code == forebay.CodeUnknownQueue:
		return failed(http.StatusNotFound, 40400, "%s%s.", textNotFound, e.Message)
	case code == forebay.CodeUnauthorized, code == forebay.CodeForbidden:
		return unauthorized("401 SubCode=40100: Unauthorized : %s", sentence(e.Message))
	case code == forebay.CodePayloadTooLarge:
		return failed(http.StatusRequestEntityTooLarge, 41300, "Payload too large. %s.", e)
	case code == forebay.CodeMethodNotAllowed:
		return failed(http.StatusMethodNotAllowed, 40500, "Method Not Allowed. %s.", e.Message)
	case code == forebay.CodeTooManyRequests, code == forebay.CodeRateLimited:
		return failed(http.StatusTooManyRequests, 42900, "Too many requests. %s.", e.Message)
	case code == forebay.CodeRequestTimeout:
		return failed(http.StatusRequestTimeout, 40800, "Request Timeout. %s.", e.Message)
	case code == forebay.CodeUnavailable:
		return failed(http.StatusServiceUnavailable, 50004, "The server is busy. Try again later.")
	case code == forebay.CodeInternal, code == forebay.CodeDatabaseUnusable:
		return failed(http.StatusInternalServerError, 50000, "Internal Server Error.")
	}
	if e.Field == "" {
		return failed(http.StatusBadRequest, 40000, "Bad Request. %s", sentence(e.Message))
	}
	return failed(http.StatusBadRequest, 40000, "Bad Request. %s %s", e.Field, sentence(e.Message))
}

// sentence ends a text as one.
func sentence(s string) string {
	if strings.HasSuffix(s, ". ") || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}

// errorOutput is the body of an error.
type errorOutput struct {
	XMLName xml.Name `xml:"Error"`
	Code    int
	Detail  string
}

// fail answers with an error. The tracking id finds it in the log.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := failureOf(err)
	var e *forebay.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(1, e.RetryAfter.Seconds()))))
	}
	id := trackingID()
	if f.status >= http.StatusInternalServerError {
		h.Logger.ErrorContext(r.Context(), "a request for entities has failed", slog.String("tracking_id", id), slog.Any("error", err))
	}
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	detail := fmt.Sprintf("%s TrackingId:%s, SystemTracker:%s, Timestamp:%s",
		strings.TrimSpace(f.text), id, hostOf(r), time.Now().UTC().Format("2006-01-02T15:04:05"))
	body, err := marshal(errorOutput{Code: f.status, Detail: detail})
	if err != nil {
		h.Logger.ErrorContext(r.Context(), "an error cannot be written", slog.Any("error", err))
	}
	w.Header().Set("Content-Type", "application/xml; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, body)
	}
}
