package orchestrate

import "testing"

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlRenewActivities, sqlRenewOrchestrationItems, sqlReadyOrchestrations, sqlReadyActivities, sqlFreeAll, sqlFreeRun, sqlFreeRest, sqlFreeOutcome,
		sqlOrchestrationBlobInUse, sqlOrchestrationStart)
}
