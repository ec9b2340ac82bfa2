package jobs

import (
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

func TestPlansOnSQLite(t *testing.T) {
	allowed := []string{"SCAN messages USING INDEX messages_deadline", "SCAN messages USING COVERING INDEX messages_deadline",
		"SCAN messages USING COVERING INDEX messages_locked_deadline", "SCAN json_each VIRTUAL TABLE INDEX 1:",
		"SCAN l", "SCAN a", "SCAN b", "SCAN x", "SCAN tenants USING INDEX tenants_paused"}
	fixture.PlansOnSQLite(t, allowed, sqlJob, sqlJobsOfTenant, sqlJobsByCorrelation, sqlJobsAlive, sqlJobsUnhappy, sqlSetAsideRows, sqlReady,
		sqlFreeOverdue, sqlLockedOverdue, sqlNextFreeDeadline, sqlNextLockedDeadline, sqlAheadInLine,
		sqlAheadInLineLater, sqlListBeside, sqlAheadOfOwn, sqlAheadOfOwnLater, sqlAheadOfOthers, sqlAheadOfOthersLater)
}

func TestPlansOnPostgres(t *testing.T) {
	madeBefore := driver.NewPrefetch(sqlMadeBefore, driver.RowName{}).Int(1).Text("")
	fixture.PlansOnPostgres(t, sqlRenewShared, sqlReadyShared, sqlNextShared, sqlAheadOfOwn, sqlAheadOfOwnLater, sqlAheadOfOthers, sqlAheadOfOthersLater,
		auditedColumns+driver.OfNumbersShared+ofAuditedJobs, sqlBehind, sqlSetAsideRows, sqlJobsByCorrelation,
		sqlJobsAlive, sqlJobsUnhappy, postgres.AheadForm(madeBefore))
}
