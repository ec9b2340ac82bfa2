package bus

import "testing"

func TestPlansOnSQLite(t *testing.T) {
	fixture.PlansOnSQLite(t, nil, sqlMessageCounts, sqlOfSession, sqlQueuesFolded, sqlHasSession)
}

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlReadyMessages, sqlReadyForMany, sqlReadyInSession, sqlDeferredMessage, sqlPeek, sqlOldest, sqlNextOfQueue, sqlHeld, sqlUnlock, sqlSessionHolder, sqlOfSession, sqlQueuesFolded, sqlHasSession)
}
