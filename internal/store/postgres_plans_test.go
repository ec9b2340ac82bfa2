package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forebayhq/forebay/internal/pgtest"
)

// Whatever is done for many rows at once looks each up, also while the tables are believed to be empty: what was walked
// then would be walked for as long as the plan is kept, and while somebody keeps an old snapshot nothing ever leaves a table.
func TestPlansOfEmptyTables(t *testing.T) {
	s, err := Open(t.Context(), Options{URL: pgtest.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	statements := []string{sqlRenewShared, sqlRenewActivities, sqlRenewTurns, sqlReadyTurns, sqlReadyActivities,
		sqlFreeAll, sqlFreeRun, sqlFreeRest, sqlFreeOutcome, sqlOrchestrationBlobInUse, sqlOrchestrationStart,
		sqlStates, sqlReadyShared, sqlNextShared, sqlAheadOfOwn, sqlAheadOfOwnLater, sqlAheadOfOthers, sqlAheadOfOthersLater,
		auditedColumns + ofNumbersShared + ofAuditedJobs, sqlVerifyAudit, sqlAuditEntries, sqlAuditActs, sqlAuditAct,
		sqlReadyMessages, sqlReadyInSession, sqlDeferredMessage, sqlPeek, sqlOldest, sqlNextOfQueue, sqlBehind, sqlHeld, sqlUnlock, sqlReportHours, sqlHourCodes, sqlWebhookRoom, sqlSweepWebhookDeliveries, sqlEndedDelivery, sqlSetAsideRows, sqlJobsByCorrelation, sqlJobsAlive, sqlJobsUnhappy}
	for single, merged := range mergeable {
		_, parameters := translate(single)
		types := make([]uint32, parameters)
		for i := range types {
			types[i] = pgtype.Int8OID
		}
		sql, _ := (^columns(0)).with(merged, types)
		statements = append(statements, sql)
	}
	arguments := func(sql string) (args []argument) {
		_, parameters := translate(sql)
		return make([]argument, parameters)
	}
	for single, form := range arrayForms {
		statements = append(statements, overParameters(form, arguments(single)))
	}
	ofTexts := []argument{{kind: kindInt}, {kind: kindText}}
	statements = append(statements, overParameters(selectForm(sqlMadeBefore, 2), ofTexts))
	err = s.DB.read(t.Context(), func(c conn) error {
		pg := c.driver.(*postgresConn)
		if err := pg.simple("VACUUM ANALYZE"); err != nil {
			return err
		}
		for i, sql := range statements {
			sql, _ = translate(sql)
			name := fmt.Sprint("plan", i)
			description, err := pg.pg.Prepare(t.Context(), name, sql, nil)
			if err != nil {
				return fmt.Errorf("%w: %s", err, sql)
			}
			values := make([]string, len(description.ParamOIDs))
			for i := range values {
				values[i] = "NULL"
			}
			explain := "EXPLAIN (COSTS OFF) EXECUTE " + name
			if len(values) > 0 {
				explain += "(" + strings.Join(values, ", ") + ")"
			}
			results, err := pg.pg.Exec(t.Context(), explain).ReadAll()
			if err != nil {
				return fmt.Errorf("%w: %s", err, sql)
			}
			var plan []string
			for _, row := range results[0].Rows {
				plan = append(plan, string(row[0]))
			}
			for i, step := range plan {
				next := ""
				if i+1 < len(plan) {
					next = strings.TrimSpace(plan[i+1])
				}
				scan := strings.Contains(step, "Index") && strings.Contains(step, " Scan ")
				walks := scan && !strings.HasPrefix(next, "Index Cond:")
				// What is found by its number is found by nothing else.
				byNumber := (strings.Contains(step, "messages_") || strings.Contains(step, "bodies_")) && !strings.Contains(step, "_pkey") &&
					(strings.HasPrefix(next, "Index Cond: (seq = ") || i+2 < len(plan) && strings.HasPrefix(strings.TrimSpace(plan[i+2]), "Filter: ") && strings.Contains(plan[i+2], "seq = "))
				if strings.Contains(step, "Seq Scan") || strings.Contains(step, "Sort") || walks || byNumber {
					t.Errorf("%s\n%s", sql, strings.Join(plan, "\n"))
					break
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
