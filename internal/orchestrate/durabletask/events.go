package durabletask

import (
	"slices"

	"github.com/dapr/durabletask-go/api/protos"

	"github.com/forebayhq/forebay/internal/orchestrate"
)

// withoutRedundantSuspends removes events that resume an instance that is not suspended, as a
// rewind does, or suspend one that is. Some SDKs fail on them. An event that it removes from a
// history it also removes from each longer one.
func withoutRedundantSuspends(old, arrived []*protos.HistoryEvent) (past, now []*protos.HistoryEvent) {
	suspended := false
	changes := func(events []*protos.HistoryEvent) []*protos.HistoryEvent {
		kept, all := events, true
		for i, e := range events {
			does := orchestrate.EffectOf(e)
			leave := does == orchestrate.Suspends && suspended || does == orchestrate.Resumes && !suspended
			if does == orchestrate.Suspends || does == orchestrate.Resumes {
				suspended = does == orchestrate.Suspends
			}
			switch {
			case leave && all: // the slice is not changed: others have it as well
				kept, all = slices.Clone(events[:i]), false
			case !leave && !all:
				kept = append(kept, e)
			}
		}
		return kept
	}
	past = changes(old)
	return past, changes(arrived)
}
