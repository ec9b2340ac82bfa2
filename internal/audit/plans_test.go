package audit

import (
	"slices"
	"testing"
)

// reads are the statements that lists of the log and its check read with.
var reads = slices.Concat([]string{sqlVerifyAudit, sqlAuditEntries, sqlAuditActs, sqlAuditAct}, inOrder.Statements())

func TestPlansOnSQLite(t *testing.T) { fixture.PlansOnSQLite(t, nil, reads...) }

func TestPlansOnPostgres(t *testing.T) { fixture.PlansOnPostgres(t, reads...) }
