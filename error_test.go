package forebay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestErrorsMatchByCode(t *testing.T) {
	wrapped := fmt.Errorf("settle job: %w", forebay.ErrLockLost)
	if !errors.Is(wrapped, forebay.ErrLockLost) || errors.Is(wrapped, forebay.ErrNotFound) {
		t.Error("errors.Is does not go by the code")
	}
	if !errors.Is(forebay.Errorf(forebay.CodeNotFound, "no such job"), forebay.ErrNotFound) {
		t.Error("another not_found error is not ErrNotFound")
	}
	for _, c := range []struct {
		err  error
		want forebay.Code
	}{
		{wrapped, forebay.CodeLockLost},
		{forebay.Invalid("body.priority", "is %d", 12), forebay.CodeInvalidRequest},
		{errors.New("anything"), forebay.CodeInternal},
		{errors.Join(errors.New("first"), forebay.ErrNotFound), forebay.CodeNotFound},
	} {
		if got := forebay.CodeOf(c.err); got != c.want {
			t.Errorf("%v has the code %s, want %s", c.err, got, c.want)
		}
	}
}

// The cause is for the log: it is in the chain, and in nothing a caller gets.
func TestCauseStaysInside(t *testing.T) {
	cause := errors.New("open /var/lib/forebay/x: permission denied")
	err := forebay.ErrNotFound.Caused(cause)
	if !errors.Is(err, cause) || !errors.Is(err, forebay.ErrNotFound) {
		t.Error("the cause or the code is not in the chain")
	}
	if errors.Unwrap(forebay.ErrNotFound) != nil {
		t.Error("Caused changed the shared error")
	}
	b, jsonErr := json.Marshal(err)
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	if strings.Contains(err.Error()+string(b), "/var") {
		t.Errorf("the cause shows: %s, %s", err, b)
	}
	if want := `{"code":"not_found","message":"not found"}`; string(b) != want {
		t.Errorf("in JSON it is %s, want %s", b, want)
	}
}

func TestErrorNamesItsField(t *testing.T) {
	err := forebay.Invalid("body.priority", "is %d; at most %d", 12, forebay.MaxPriority)
	if got, want := err.Error(), "body.priority: is 12; at most 9"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAsTaskError(t *testing.T) {
	filtered := forebay.Permanent("content_filter", "the provider refused the content")
	late := fmt.Errorf("call east: %w", context.DeadlineExceeded)
	plain := errors.New("connection reset")
	for _, c := range []struct {
		err   error
		class forebay.ErrorClass
		code  string
	}{
		{fmt.Errorf("run task: %w", filtered), forebay.ClassPermanent, "content_filter"},
		{late, forebay.ClassTransient, "timeout"},
		{plain, forebay.ClassTransient, "error"},
	} {
		got := forebay.AsTaskError(c.err)
		if got.Class != c.class || got.Code != c.code || got.Message == "" {
			t.Errorf("%v becomes %+v", c.err, got)
		}
	}
	if got := forebay.AsTaskError(plain); !errors.Is(got, plain) {
		t.Error("the original error is not in the chain")
	}
}
