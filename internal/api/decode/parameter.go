package decode

import (
	"fmt"
	"strings"
	"time"

	"github.com/forebayhq/forebay"
)

// bounds are the beginnings of what huma says of a parameter beyond a limit, and what we say.
var bounds = map[string]string{
	"expected number >= ": "must be at least %s",
	"expected number <= ": "must be at most %s",
	"expected length >= ": "must have at least %s characters",
	"expected length <= ": "must have at most %s characters",
}

// ParameterMessage says in our words what huma says of a parameter.
func ParameterMessage(said string) string {
	switch {
	case said == "invalid integer":
		return "must be a whole number"
	case said == "invalid float":
		return "must be a number"
	case said == "invalid boolean":
		return "must be true or false"
	case strings.HasPrefix(said, "invalid date/time for format "): // which is a layout of Go's
		return "must be " + WantTime
	}
	if values, ok := strings.CutPrefix(said, "expected value to be one of "); ok {
		return "must be one of " + strings.Trim(values, `"`)
	}
	for theirs, ours := range bounds {
		if limit, ok := strings.CutPrefix(said, theirs); ok {
			return fmt.Sprintf(ours, limit)
		}
	}
	return said
}

// CheckSeconds refuses a parameter unless it is a number of seconds from 0 to most.
func CheckSeconds(name string, seconds float64, most time.Duration) error {
	if !(seconds >= 0 && seconds <= most.Seconds()) { // NaN compares as false
		return forebay.Invalid(name, "must be a number of seconds from 0 to %g", most.Seconds())
	}
	return nil
}

// Patience is how long a request waits for the end of an instance of an orchestration.
type Patience struct {
	Wait    string  `query:"wait" doc:"how long to wait for the instance to be over, up to 60s" example:"30s"`
	Timeout float64 `query:"timeout" doc:"the same as a number of seconds, as clients of Durable Functions say it; not with wait"`
}

// Duration returns it, or CodeInvalidRequest if it is more than most or no time.
func (p Patience) Duration(most time.Duration) (time.Duration, error) {
	if err := CheckSeconds("timeout", p.Timeout, most); err != nil {
		return 0, err
	}
	if p.Wait != "" {
		if p.Timeout > 0 {
			return 0, forebay.Invalid("timeout", "does not go with wait, which says the same")
		}
		return forebay.ParseWait(p.Wait)
	}
	return time.Duration(p.Timeout * float64(time.Second)), nil
}
