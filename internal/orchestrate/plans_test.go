package orchestrate

import "testing"

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlRenewActivities, sqlRenewTurns, sqlReadyTurns, sqlReadyActivities, sqlFreeAll, sqlFreeRun, sqlFreeRest, sqlFreeOutcome,
		sqlOrchestrationBlobInUse, sqlOrchestrationStart)
}
