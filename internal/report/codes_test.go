package report

import (
	"context"
	"fmt"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/queue"
)

// fixture opens a store on every engine.
var fixture = dbtest.Fixture[*Store]{
	Open: func(ctx context.Context, opts db.Options) (*Store, error) {
		s := &Store{Store: &queue.Store{}}
		_, err := db.Open(ctx, opts, s.Store, s)
		return s, err
	},
	DB:     func(s *Store) *db.DB { return s.DB },
	Parked: func(*Store, *db.Tx) int { return 0 },
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// However many codes of errors are made up, reports tell a bounded number apart of a tenant in
// an hour, and count all.
func TestErrorCodesOfReportsAreBounded(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *Store) {
		tenant, err := s.EnsureTenant(t.Context(), "acme")
		mustDo(t, err)
		const failures = 3 * maxHourCodes
		hour := s.Now().UnixMilli() / hourMillis
		fail := func(from, to int, aside func(*Tx)) {
			t.Helper()
			_, err := db.TransactIn(t.Context(), Key, s.Writer, db.Op{Stage: db.StageChange}, func(tx *Tx) (struct{}, error) {
				aside(tx)
				for i := from; i < to; i++ {
					for range 2 {
						tx.Count(Attempt{Tenant: tenant, FinishedAt: hour * hourMillis, Deployment: "east", Number: 1, Outcome: forebay.OutcomeFailed,
							Class: forebay.ClassPermanent, Code: fmt.Sprint("code ", i)}, 1)
					}
				}
				return struct{}{}, nil
			})
			mustDo(t, err)
		}
		keep := func(*Tx) {}
		fail(0, maxHourCodes/2, keep)
		fail(maxHourCodes/2, failures/2, func(tx *Tx) { tx.w.codes = nil }) // as after a restart
		fail(failures/2, failures, keep)
		fail(0, 1, keep)
		fail(failures, failures+1, func(tx *Tx) { tx.w.codes = nil })
		report, err := s.RetryReport(t.Context(), "acme", false, driver.FromMillis(hour*hourMillis), driver.FromMillis((hour+1)*hourMillis))
		mustDo(t, err)
		if report.Attempts != 2*(failures+2) || report.Failed != report.Attempts {
			t.Errorf("%d attempts of %d, %d failed", report.Attempts, 2*(failures+2), report.Failed)
		}
		if len(report.ByDeployment) != maxHourCodes+1 {
			t.Fatalf("%d codes are told apart", len(report.ByDeployment))
		}
		want := forebay.ErrorCount{Name: "east", Class: forebay.ClassPermanent, Code: otherCode, Count: 2 * (failures + 1 - maxHourCodes)}
		if first := report.ByDeployment[0]; first != want {
			t.Errorf("first are %+v, not %+v", first, want)
		}
		if second := report.ByDeployment[1]; second.Code != "code 0" || second.Count != 4 {
			t.Errorf("then come %+v", second)
		}
	})
}

func TestPlans(t *testing.T) {
	fixture.PlansOnSQLite(t, []string{"SCAN h", "SCAN d", "SCAN tenants"}, append(usageStatements(), sqlReportHours, sqlForgetHours, sqlForgetDays, sqlOldHour, sqlOldDay, sqlTenantNames, sqlNextHour, sqlNextTenants, sqlForgetDay, sqlMakeDetailed, sqlMakeTogether)...)
	fixture.PlansOnPostgres(t, sqlReportHours, sqlHourCodes, sqlOldHour, sqlOldDay, sqlFoldHour, sqlDeleteHour, sqlNextHour, sqlForgetDay, sqlMakeDetailed, sqlMakeTogether)
}
