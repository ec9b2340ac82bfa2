package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
)

// Audit selects the events of jobs for the audit log. Acts of operators and events of budgets are
// always there.
type Audit struct {
	// JobEvents are types of [forebay.JobEventTypes]. Each event of these types that this process
	// makes is appended. An empty list means none. The default is dead_lettered and quarantined: a
	// job that fails for good has one of them.
	JobEvents []forebay.EventType `koanf:"job_events"`
}

func (a Audit) withDefaults() Audit {
	if a.JobEvents == nil {
		a.JobEvents = []forebay.EventType{forebay.EventDeadLettered, forebay.EventQuarantined}
	}
	return a
}

func (a Audit) validate(bad func(field, format string, args ...any)) {
	for i, name := range a.JobEvents {
		at := fmt.Sprintf("audit.job_events[%d]", i)
		switch {
		case !slices.Contains(forebay.JobEventTypes, name):
			var known []string
			for _, kind := range forebay.JobEventTypes {
				known = append(known, string(kind))
			}
			bad(at, "%.40q is none of %s", string(name), strings.Join(known, ", "))
		case slices.Contains(a.JobEvents[:i], name):
			bad(at, "names %s twice", name)
		}
	}
}
