package orchestrate

import (
	"testing"

	"github.com/forebayhq/forebay/internal/orchestrate/statements"
)

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, statements.RenewActivities, statements.RenewItems, statements.Ready, statements.ReadyActivities, statements.FreeAll, statements.FreeEnded, statements.FreeRun, statements.FreeRest, statements.FreeAwaited, statements.FreeOutcome,
		sqlOrchestrationBlobInUse, statements.Start, statements.HistorySize, statements.AttemptsSize)
}
