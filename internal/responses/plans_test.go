package responses

import (
	"testing"
)

const sqlRead = sqlRow + "id = ? AND tenant = ? AND expires_at > ?"

// What responses ask finds rows by an index.
func TestPlansOnSQLite(t *testing.T) {
	fixture.PlansOnSQLite(t, nil, sqlRead, sqlRepeated, sqlAppend, sqlFinish, sqlEndWithJob, sqlEndWithJob+" RETURNING id, tenant", sqlEventRows, sqlExpired, sqlForgotten, sqlPurgeGroups, sqlGone, sqlPurgeGone, sqlEmptyGone, sqlBlobUsed,
		sqlInsertFirst, sqlBegin, sqlDelete, sqlList, sqlListed, sqlSecret)
}

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlRead, sqlRepeated, sqlAppend, sqlFinish, sqlEndWithJob, sqlEventRows, sqlExpired, sqlForgotten, sqlPurgeGroups, sqlGone, sqlPurgeGone, sqlEmptyGone, sqlBlobUsed,
		sqlInsertFirst, sqlBegin, sqlDelete, sqlList, sqlListed, sqlSecret)
}
