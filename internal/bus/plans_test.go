package bus

import "testing"

func TestPlansOnSQLite(t *testing.T) {
	fixture.PlansOnSQLite(t, nil, sqlMessageCounts, sqlHeld, sqlScheduled, sqlProperties, sqlSessionLock)
}

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlReadyMessages, sqlReadyForMany, sqlReadyInSession, sqlDeferredMessage, sqlPeek, sqlOldest, sqlNextOfQueue, sqlHeld, sqlScheduled, sqlProperties, sqlSessionLock, sqlUnlock, sqlSessionHolder)
}
