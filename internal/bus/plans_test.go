package bus

import "testing"

func TestPlansOnSQLite(t *testing.T) {
	fixture.PlansOnSQLite(t, nil, sqlMessageCounts, sqlTopicCounts, sqlQueueFolded, sqlEntityPage, sqlSubscriptionPage, sqlStatus, sqlSessionLock, sqlReadyMessages, sqlReadyInSession, sqlNextSessions, sqlDeleteHeld, sqlOfSession, sqlQueuesFolded, sqlHasSession)
}

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlReadyMessages, sqlReadyForMany, sqlReadyInSession, sqlDeferredMessage, sqlPeek, sqlOldest, sqlNextOfQueue, sqlHeld, sqlUnlock, sqlSessionHolder, sqlQueueFolded, sqlEntityPage, sqlSubscriptionPage, sqlStatus, sqlSessionLock, sqlNextSessions, sqlTopicCounts, sqlAccessed, sqlOfSession, sqlQueuesFolded, sqlHasSession)
}
