package orchestrate

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/audit"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/orchestrate/workqueues"
)

// anyWork asks for work items of any name.
func anyWork(n int) ClaimRequest {
	return ClaimRequest{Max: n, Lock: time.Minute, Taker: &takesAny}
}

var takesAny = workqueues.Taker{Takes: func(string) workqueues.Condition { return workqueues.Always }}

func takesOf(tenant int64) *workqueues.Taker {
	return &workqueues.Taker{
		Takes:     func(string) workqueues.Condition { return workqueues.IfConnected },
		Connected: func(other int64) bool { return other == tenant },
	}
}

func takeItem(t *testing.T, s *stores) *OrchestrationItem {
	t.Helper()
	orchestrations, err := s.Orchestrations.ClaimOrchestrations(t.Context(), anyWork(1))
	if err != nil {
		t.Fatal(err)
	}
	return &orchestrations[0]
}

// underWay makes an instance with so many activities, all of them claimed.
func underWay(t *testing.T, s *stores, n int) (o OrchestrationRow, activities []ActivityItem) {
	t.Helper()
	tenant := tenantOf(t, s, "acme")
	err := s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: "one", Execution: "first", Name: "fan", Event: Inline([]byte("start"))})
	if err != nil {
		t.Fatal(err)
	}
	result := OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("start"))}
	for i := range n {
		result.Activities = append(result.Activities, NewActivity{EventID: i, Name: "step", Event: Inline([]byte("do"))})
	}
	if _, err := s.Orchestrations.CompleteOrchestration(t.Context(), takeItem(t, s), &result); err != nil {
		t.Fatal(err)
	}
	for len(activities) < n {
		some, err := s.Orchestrations.ClaimActivities(t.Context(), anyWork(n))
		if err != nil {
			t.Fatal(err)
		}
		activities = append(activities, some...)
	}
	if o, err = s.Orchestrations.Orchestration(t.Context(), tenant, "one"); err != nil {
		t.Fatal(err)
	}
	return o, activities
}

func countOf(t *testing.T, s *stores, sql string, instance int64) (n int64) {
	t.Helper()
	err := s.DB.Read(t.Context(), func(c driver.Conn) error {
		_, err := c.Prep(sql).Int(instance).One(func(r driver.Row) { n = r.Int(0) })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const (
	sqlAnswers  = "SELECT count(*) FROM orchestration_inbox WHERE instance = ? AND answer = 1"
	sqlUnderWay = "SELECT count(*) FROM orchestration_activities WHERE instance = ?"
)

var success = ActivityOutcome{Outcome: ActivitySucceeded, Event: Inline([]byte("done"))}

// Of activities that are settled in one transaction, those whose locks hold end, each once. Lost
// locks and second settlements get an error and change nothing.
func TestSettleActivitiesTogether(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const n = 12
		o, activities := underWay(t, s, n)
		var calls []func() error
		settle := func(a ActivityItem, outcome ActivityOutcome) {
			calls = append(calls, func() error { return s.Orchestrations.SettleActivity(t.Context(), &a, outcome) })
		}
		var held []bool
		for i, a := range activities {
			stale := a
			stale.Token++
			switch i % 4 {
			case 0:
				settle(a, success)
				settle(a, success)
				held = append(held, true, false)
			case 1:
				settle(stale, success)
				settle(a, ActivityOutcome{Outcome: ActivityFailed, ErrorType: "broken", Event: Inline([]byte("failed"))})
				held = append(held, false, true)
			case 2:
				settle(stale, success)
				settle(a, ActivityOutcome{Outcome: ActivityRetried, Delay: time.Hour})
				held = append(held, false, true)
			default:
				settle(stale, success)
				held = append(held, false)
			}
		}
		for i, err := range dbtest.InOneTransaction(t, s.DB, calls...) {
			if lost := errors.Is(err, forebay.ErrLockLost); lost == held[i] || err != nil && !lost {
				t.Errorf("settlement %d, held %t: %v", i, held[i], err)
			}
		}
		for sql, want := range map[string]int64{
			sqlAnswers:  n / 2,
			sqlUnderWay: n / 2,
			"SELECT count(*) FROM orchestration_attempts WHERE instance = ?":                                                                                           3 * n / 4,
			"SELECT count(*) FROM orchestration_activities WHERE instance = ? AND lock_token IS NOT NULL":                                                              n / 4,
			"SELECT count(*) FROM orchestration_items t WHERE instance = ? AND lock_token IS NULL AND visible_at <= (SELECT max(visible_at) FROM orchestration_inbox)": 1,
		} {
			if got := countOf(t, s, sql, o.No); got != want {
				t.Errorf("%s: %d, want %d", sql, got, want)
			}
		}
		if item := takeItem(t, s); len(item.Arrived) != n/2 {
			t.Errorf("the next turn sees %d answers", len(item.Arrived))
		}
	})
}

// An instance that continues as new gets no answer to its old execution, even from an activity
// in the same transaction.
func TestSettleBesideReset(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		o, activities := underWay(t, s, 1)
		if err := s.Orchestrations.SendOrchestration(t.Context(), Signal{Tenant: tenantOf(t, s, "acme"), ID: o.ID, Event: Inline([]byte("again"))}); err != nil {
			t.Fatal(err)
		}
		item := takeItem(t, s)
		ends := dbtest.InOneTransaction(t, s.DB, func() error {
			_, err := s.Orchestrations.CompleteOrchestration(t.Context(), item, &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("start")), Reset: &Reset{Execution: "second"}})
			return err
		}, func() error { return s.Orchestrations.SettleActivity(t.Context(), &activities[0], success) })
		if err := errors.Join(ends...); err != nil {
			t.Error(err)
		}
		for _, sql := range []string{sqlAnswers, sqlUnderWay} {
			if n := countOf(t, s, sql, o.No); n != 0 {
				t.Errorf("%s: %d", sql, n)
			}
		}
	})
}

// Of the locks of work items those that hold are renewed, and the tokens of the others are
// returned.
func TestRenewItems(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		const n = 6
		o, activities := underWay(t, s, n)
		if err := s.Orchestrations.SettleActivity(t.Context(), &activities[0], success); err != nil {
			t.Fatal(err)
		}
		item := takeItem(t, s)
		stale := *item
		stale.Token++
		activities[1].Token++
		var all []*ActivityItem
		for i := range activities {
			all = append(all, &activities[i])
		}
		lost, err := s.Orchestrations.RenewItems(t.Context(), []*OrchestrationItem{&stale, item}, all, time.Hour)
		if err != nil || len(lost) != 3 || !lost[stale.Token] || !lost[activities[0].Token] || !lost[activities[1].Token] {
			t.Errorf("%d locks were lost: %v", len(lost), err)
		}
		for table, want := range map[string]int64{"orchestration_items": 1, "orchestration_activities": n - 2} {
			sql := "SELECT count(*) FROM " + table + " WHERE instance = ? AND visible_at - 1800000 > (SELECT min(visible_at) FROM orchestration_inbox)"
			if got := countOf(t, s, sql, o.No); got != want {
				t.Errorf("%d of %s were renewed, want %d", got, table, want)
			}
		}
		if lost, err := s.Orchestrations.RenewItems(t.Context(), nil, nil, time.Hour); err != nil || len(lost) != 0 {
			t.Errorf("no locks: %v, %v", lost, err)
		}
	})
}

// attemptsOf shows the recorded attempts of an instance.
func attemptsOf(t *testing.T, s *stores, instance int64) (shown []string) {
	t.Helper()
	attempts, err := s.Orchestrations.ActivityAttempts(t.Context(), instance)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range attempts {
		shown = append(shown, fmt.Sprint(a.Run, ".", a.EventID, ".", a.Number, " ", a.Name, " ", a.Outcome))
	}
	return shown
}

// anew has an instance continue as new with an activity, and returns that.
func anew(t *testing.T, s *stores, o OrchestrationRow) ActivityItem {
	t.Helper()
	if err := s.Orchestrations.SendOrchestration(t.Context(), Signal{Tenant: tenantOf(t, s, "acme"), ID: o.ID, Event: Inline([]byte("again"))}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Orchestrations.CompleteOrchestration(t.Context(), takeItem(t, s), &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("start")),
		Reset: &Reset{Execution: "next"}, Activities: []NewActivity{{EventID: 0, Name: "step", Event: Inline([]byte("do"))}}})
	if err != nil {
		t.Fatal(err)
	}
	taken, err := s.Orchestrations.ClaimActivities(t.Context(), anyWork(1))
	if err != nil {
		t.Fatal(err)
	}
	return taken[0]
}

// Attempts stay on record when their instance continues as new. Dropped attempts are recorded
// too.
func TestAttemptsOutliveTheirExecution(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		o, activities := underWay(t, s, 3)
		retried := ActivityOutcome{Outcome: ActivityRetried, ErrorType: "broken", Delay: time.Hour}
		if err := errors.Join(s.Orchestrations.SettleActivity(t.Context(), &activities[0], success), s.Orchestrations.SettleActivity(t.Context(), &activities[1], retried)); err != nil {
			t.Fatal(err)
		}
		want := []string{"0.0.1 step succeeded", "0.1.1 step retried", "0.2.1 step cut_off"}
		second := anew(t, s, o)
		if got := attemptsOf(t, s, o.No); !slices.Equal(got, want) {
			t.Errorf("then there are %q", got)
		}
		if err := s.Orchestrations.SettleActivity(t.Context(), &second, success); err != nil {
			t.Fatal(err)
		}
		anew(t, s, o)
		if err := s.Orchestrations.SendOrchestration(t.Context(), Signal{Tenant: tenantOf(t, s, "acme"), ID: o.ID, Event: Inline([]byte("stop")), Effect: Terminates}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Orchestrations.CompleteOrchestration(t.Context(), takeItem(t, s), &OrchestrationResult{Status: forebay.OrchestrationTerminated, Events: 1, History: Inline([]byte("end"))}); err != nil {
			t.Fatal(err)
		}
		if got := attemptsOf(t, s, o.No); !slices.Equal(got, append(want, "1.0.1 step succeeded", "2.0.1 step cut_off")) {
			t.Errorf("at the end there are %q", got)
		}
		if _, err := s.Orchestrations.PurgeOrchestration(t.Context(), tenantOf(t, s, "acme"), o.ID, nil, audit.Act{}); err != nil {
			t.Fatal(err)
		}
		if got := attemptsOf(t, s, o.No); len(got) != 0 {
			t.Errorf("of a purged instance there are %q", got)
		}
	})
}

// The recorded attempts of an instance that continues as new for ever are bounded: the newest
// are kept.
func TestAttemptsAreBounded(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		o, activities := underWay(t, s, 1)
		_, err := db.TransactIn(t.Context(), key, s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *tx) (struct{}, error) {
			for i := range maxEarlierAttempts + 100 {
				a := ActivityItem{Instance: o.No, EventID: maxEarlierAttempts + 100 - i, Number: 1, StartedAt: driver.FromMillis(int64(i))}
				if err := t.activityAttempt(&a, ActivityOutcome{Outcome: ActivityLost}); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, t.Prep("UPDATE orchestration_attempts SET finished_at = started_at WHERE instance = ?").Int(o.No).Exec()
		})
		if err != nil {
			t.Fatal(err)
		}
		for range pruneAttemptsEvery {
			if err := s.Orchestrations.SettleActivity(t.Context(), &activities[0], success); err != nil {
				t.Fatal(err)
			}
			activities[0] = anew(t, s, o)
		}
		got := attemptsOf(t, s, o.No)
		if oldest := fmt.Sprint("0.", maxEarlierAttempts-pruneAttemptsEvery, ".1  lost"); len(got) != maxEarlierAttempts || !slices.Contains(got, oldest) || !slices.Contains(got, "15.0.1 step succeeded") {
			t.Errorf("%d attempts are kept: %q", len(got), got)
		}
	})
}
