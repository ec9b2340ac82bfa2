package bus

import (
	"testing"

	"github.com/forebayhq/forebay/internal/bus/entity"
)

func TestPlansOnSQLite(t *testing.T) {
	fixture.PlansOnSQLite(t, nil, entity.SQLCounts, sqlTopicCounts, sqlQueueFolded, sqlEntityPage, sqlSubscriptionPage, sqlStatus, sqlSessionLock, sqlReadyMessages, sqlReadyInSession, sqlNextSessions, sqlDeleteHeld, sqlOfSession, sqlHasSession, sqlHeld, sqlScheduled, sqlProperties)
}

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlReadyMessages, sqlReadyForMany, sqlReadyInSession, sqlDeferredMessage, sqlPeek, sqlOldest, sqlNextOfQueue, sqlHeld, sqlUnlock, sqlSessionHolder, sqlQueueFolded, sqlEntityPage, sqlSubscriptionPage, sqlStatus, sqlSessionLock, sqlNextSessions, sqlTopicCounts, sqlAccessed, sqlOfSession, sqlHasSession, sqlScheduled, sqlProperties)
}
