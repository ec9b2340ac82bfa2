package server

import (
	"testing"
	"time"
)

// Jobs that are kept for less than an hour are deleted as often.
func TestShortRetentionPurgesOften(t *testing.T) {
	t.Parallel()
	keep := func(d time.Duration) *time.Duration { return &d }
	for _, c := range []struct {
		retention Retention
		want      time.Duration
	}{
		{Retention{}, time.Hour},
		{Retention{Succeeded: keep(0), Failed: keep(0), Orchestrations: keep(0)}, time.Hour},
		{Retention{Succeeded: keep(10 * time.Minute)}, 10 * time.Minute},
		{Retention{Failed: keep(20 * time.Minute), SetAside: keep(15 * time.Minute)}, 15 * time.Minute},
		{Retention{Orchestrations: keep(time.Minute)}, time.Minute},
		{Retention{Responses: keep(time.Minute), Batches: keep(time.Minute)}, time.Hour}, // they have clocks of their own
	} {
		if got := c.retention.withDefaults().every(); got != c.want {
			t.Errorf("%+v purges each %s, not %s", c.retention, got, c.want)
		}
	}
}
