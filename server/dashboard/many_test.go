package dashboard_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// manyTenants adds more tenants to a SQLite database than a report has rows. Each has had a call.
func manyTenants(t *testing.T, database string) {
	t.Helper()
	c, err := sqlite.OpenConn(strings.TrimPrefix(database, "sqlite:"), sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	c.SetBusyTimeout(time.Minute)
	err = sqlitex.ExecuteScript(c, fmt.Sprintf(`
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= %d)
INSERT INTO tenants (no, name, created_at) SELECT 1000 + i, printf('many-%%05d', i), 1 FROM n;
INSERT INTO attempt_hours (tenant, hour, task, deployment, number, outcome, error_class, error_code, attempts, retries)
SELECT no, %d, 'chat', 'east', 1, 'succeeded', '', '', 1, 0 FROM (SELECT 0 AS no UNION ALL SELECT no FROM tenants WHERE no > 1000)`,
		forebay.MaxUsageRows, time.Now().UnixMilli()/3_600_000), nil)
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
}

// Where there are more tenants than a report may have rows, the page of usage shows their sum.
func TestUsageOfManyTenants(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + dbtest.SQLite(t)
	o := operate(t, database)
	manyTenants(t, database)
	o.admin.Get("/usage").Is(http.StatusOK).Has("1 row,", "more rows than a report may have", `<svg class="chart"`)
	o.admin.Get("/usage?by=task").Is(http.StatusOK).Has("1 row,", "chat").Lacks("more rows than")
	o.admin.Get("/usage?tenant=many-00007").Is(http.StatusOK).Has("1 row,", "chat").Lacks("more rows than")
}
