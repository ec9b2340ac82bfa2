package jobs

import (
	"testing"

	"github.com/forebayhq/forebay/internal/admission"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/jobs/record"
)

func TestPlansOnSQLite(t *testing.T) {
	allowed := []string{"SCAN messages USING INDEX messages_deadline", "SCAN messages USING COVERING INDEX messages_deadline",
		"SCAN messages USING COVERING INDEX messages_locked_deadline", "SCAN json_each VIRTUAL TABLE INDEX 1:", "SCAN CONSTANT ROW", "SCAN x"}
	fixture.PlansOnSQLite(t, allowed, append(record.Statements(false), sqlInput, sqlReady, record.SQLRedrive, events.SQLEventFollows, sqlCancelled,
		sqlFreeOverdue, sqlLockedOverdue, sqlNextFreeDeadline, sqlNextLockedDeadline, sqlLaterFreeDeadline, sqlLaterLockedDeadline)...)
}

func TestPlansOnPostgres(t *testing.T) {
	madeBefore := driver.NewPrefetch(sqlMadeBefore, driver.RowName{}).Int(1).Text("")
	turn := jobSession{1, 1, "s"}.prefetchTurn()
	locked := driver.NewPrefetch(sqlLocked, driver.RowName{}).Int(1).Int(1)
	cancelled := driver.NewPrefetch(sqlCancelled, driver.RowName{}).Int(1)
	fixture.PlansOnPostgres(t, append(record.Statements(true), sqlRenewShared, sqlReadyShared, sqlNextShared, sqlLaterFreeDeadline,
		events.PublishedColumns+driver.OfNumbersShared+events.OfPublishedJobs,
		events.AuditedColumns+driver.OfNumbersShared+events.OfAuditedJobs, sqlBackfill, sqlInput, postgres.AheadForm(madeBefore), postgres.AheadForm(turn), postgres.AheadForm(locked),
		postgres.AheadForm(cancelled), postgres.AheadForm(admission.PrefetchHolds(1, 1, driver.RowName{})),
		postgres.AheadForm(admission.PrefetchLiveHolds(1, driver.RowName{})))...)
}
