package bus

import (
	"testing"

	"github.com/forebayhq/forebay/internal/bus/dead"
	"github.com/forebayhq/forebay/internal/bus/entity"
)

func TestPlansOnSQLite(t *testing.T) {
	fixture.PlansOnSQLite(t, nil, entity.SQLCounts, entity.SQLTopicCounts, entity.SQLTopicFilters, entity.SQLFolded, entity.SQLRule, entity.SQLPage, entity.SQLSubscriptionPage, entity.SQLStatus, sqlSessionLock, sqlReadyMessages, sqlReadyInSession, sqlNextSessions, sqlDeleteHeld, sqlOfSession, entity.SQLHasSession, sqlHeld, sqlScheduled, sqlProperties, dead.SQLSelect, dead.SQLOne, dead.SQLLast, dead.SQLGroups,
		entity.SQLLaterDueMessage, entity.SQLLaterForget, entity.SQLForgetsMore, entity.SQLLaterDueQueue, entity.SQLLaterIdleQueue, entity.SQLDue, entity.SQLDueMessages)
	fixture.PlansOnSQLite(t, []string{"SCAN CONSTANT ROW"}, entity.SQLIdle)
}

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlReadyMessages, sqlReadyForMany, sqlReadyInSession, sqlDeferredMessage, sqlPeek, entity.SQLOldest, entity.SQLFree, sqlNextOfQueue, sqlHeld, sqlUnlock, sqlSessionHolder, entity.SQLFolded, entity.SQLRule, entity.SQLPage, entity.SQLSubscriptionPage, entity.SQLStatus, sqlSessionLock, sqlNextSessions, entity.SQLTopicCounts, entity.SQLTopicFilters, entity.SQLAccessed, sqlOfSession, entity.SQLHasSession, sqlScheduled, sqlProperties, dead.SQLSelect, dead.SQLOne, dead.SQLLast, dead.SQLGroups,
		entity.SQLLaterDueMessage, entity.SQLLaterForget, entity.SQLForgetsMore, entity.SQLLaterDueQueue, entity.SQLLaterIdleQueue, entity.SQLIdle, entity.SQLDue, entity.SQLDueMessages)
}
