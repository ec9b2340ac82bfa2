package orchestrate

import (
	"testing"

	"github.com/forebayhq/forebay/internal/orchestrate/statements"
)

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlRenewActivities, sqlRenewOrchestrationItems, sqlReadyOrchestrations, sqlReadyActivities, statements.FreeAll, statements.FreeRun, statements.FreeRest, statements.FreeOutcome,
		sqlOrchestrationBlobInUse, sqlOrchestrationStart)
}
