package servicebus

import (
	"errors"
	"testing"

	"github.com/forebayhq/forebay"
)

// Of scheduled messages that are cancelled together one that is gone hides no error that a client
// may try again.
func TestNotCancelled(t *testing.T) {
	t.Parallel()
	gone, later := &forebay.Error{Code: forebay.CodeNotFound}, &forebay.Error{Code: forebay.CodeUnavailable}
	for _, c := range []struct {
		errs []error
		want error
	}{
		{nil, nil},
		{[]error{nil, nil}, nil},
		{[]error{nil, gone, nil}, errNoMessage},
		{[]error{gone, nil, later}, later},
		{[]error{later, gone}, later},
	} {
		if err := notCancelled(c.errs); !errors.Is(err, c.want) {
			t.Errorf("%v became %v, want %v", c.errs, err, c.want)
		}
	}
}
