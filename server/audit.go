package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forebayhq/forebay"
)

// Audit says what the audit log holds beside what operators do and what is told of budgets.
type Audit struct {
	// JobEvents are the types, of [forebay.JobEventTypes], of which this process appends each event of a job that it
	// makes. An empty list is none. Default: dead_lettered and quarantined, one of which a job has when it fails for good.
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
