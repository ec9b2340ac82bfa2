package audit

import "testing"

func TestPlansOnSQLite(t *testing.T) {
	fixture.PlansOnSQLite(t, nil, sqlVerifyAudit, sqlAuditEntries, sqlAuditActs, sqlAuditAct)
}

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlVerifyAudit, sqlAuditEntries, sqlAuditActs, sqlAuditAct)
}
