package orchestrate

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dapr/durabletask-go/task"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// The clock of a process may differ from the database's, by which timers are due. So an
// orchestrator sees the database's time, also in an execution that continues as new.
func TestOrchestratorSeesTheTimeOfTheDatabase(t *testing.T) {
	t.Parallel()
	c := fixture.ClockSchema(dbtest.NewClockServer(t)) // its time is years ahead, and stands
	mustDo(t, c.Open(t).DB.Close())
	r := NewRegistry()
	addOrchestrator(t, r, "times", func(ctx *task.WorkflowContext) (any, error) {
		var times []time.Time
		if err := ctx.GetInput(&times); err != nil {
			return nil, err
		}
		if times = append(times, ctx.CurrentTimeUtc); len(times) < 2 {
			ctx.ContinueAsNew(times)
		}
		return times, nil
	})
	where := c.Options()
	where.Serve = true
	p := run(t, where, Options{Registry: r})
	o := p.ends(t, p.start(t, StartRequest{Name: "times", Input: []byte("[]")}), forebay.OrchestrationCompleted)
	now := time.UnixMilli(c.Now()).UTC().Format(time.RFC3339)
	if want := fmt.Sprintf("[%[1]q,%[1]q]", now); string(o.Output) != want {
		t.Errorf("it has seen %s, not %s", o.Output, want)
	}
}

// A turn is under way while the clock, which was ahead, is corrected. A timer that it has not
// seen stays, though it is due now before the time at which the turn began.
func TestTimerOutlivesAClockThatGoesBackDuringATurn(t *testing.T) {
	fixture.FromOutside(t, func(t *testing.T, e outside) {
		s := e.Open()
		tenant := tenantOf(t, s, "acme")
		mustDo(t, s.Orchestrations.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: "one", Execution: "first", Name: "fan", Event: Inline([]byte("start"))}))
		result := func(timers ...Timer) *OrchestrationResult {
			return &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("h")), Timers: timers}
		}
		ahead := s.DB.Now().Add(10 * time.Hour)
		item := takeItem(t, s)
		_, err := s.Orchestrations.CompleteOrchestration(t.Context(), item, result(Timer{At: ahead.Add(time.Hour).UnixMilli(), Event: Inline([]byte("timer"))}))
		mustDo(t, err)
		mustDo(t, s.Orchestrations.SendOrchestration(t.Context(), Signal{Tenant: tenant, ID: "one", Event: Inline([]byte("event"))}))
		item = takeItem(t, s)
		// As if all that had happened while the clock was ahead.
		item.now = ahead.UnixMilli()
		mustDo(t, e.Tamper(fmt.Sprintf("UPDATE orchestration_inbox SET set_at = %d; UPDATE orchestration_items SET visible_at = %d", item.now, item.now+60_000)))
		mustDo(t, s.DB.MendClock(t.Context()))
		_, err = s.Orchestrations.CompleteOrchestration(t.Context(), item, result())
		if code := forebay.CodeOf(err); err != nil && code != forebay.CodeLockLost {
			t.Fatal(err)
		} else if err != nil { // it is done again
			_, err := s.Orchestrations.CompleteOrchestration(t.Context(), takeItem(t, s), result())
			mustDo(t, err)
		}
		const sqlTimer = "SELECT count(*) FROM orchestration_inbox i JOIN orchestration_items t ON t.instance = i.instance WHERE i.instance = ? AND i.answer = 1 AND t.visible_at = i.visible_at"
		if countOf(t, s, sqlTimer, item.Instance) != 1 {
			t.Error("the timer is gone, or wakes nobody")
		}
	})
}

// A turn was begun while the clock was ahead. It is done again with the time that the clock shows
// now: its timers are counted from its time.
func TestTurnOfATimeAheadIsDoneAgain(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		item := starts(t, s, "one")[0]
		item.now += 10 * time.Hour.Milliseconds()
		at := time.UnixMilli(item.now).Add(time.Minute)
		r := &OrchestrationResult{Status: forebay.OrchestrationRunning, Events: 1, History: Inline([]byte("h")), Timers: []Timer{{At: at.UnixMilli(), Event: Inline([]byte("timer"))}}}
		if _, err := s.Orchestrations.CompleteOrchestration(t.Context(), item, r); !errors.Is(err, forebay.ErrLockLost) {
			t.Errorf("a turn of a time ahead is stored: %v", err)
		}
		mustDo(t, s.Orchestrations.AbandonOrchestration(t.Context(), item, 0, false))
		_, err := s.Orchestrations.CompleteOrchestration(t.Context(), takeItem(t, s), r)
		mustDo(t, err)
	})
}

// A turn whose result is too large is on record with the time that its code has seen.
func TestTurnThatCannotBeStoredHasTheTimeOfTheDatabase(t *testing.T) {
	t.Parallel()
	c := fixture.ClockSchema(dbtest.NewClockServer(t)) // its time is years ahead, and stands
	mustDo(t, c.Open(t).DB.Close())
	var fits atomic.Bool
	r := NewRegistry()
	addOrchestrator(t, r, "times", func(ctx *task.WorkflowContext) (any, error) {
		began := ctx.CurrentTimeUtc
		if !fits.Load() {
			return strings.Repeat("x", 2000), nil
		}
		return began, nil
	})
	where := c.Options()
	where.Serve = true
	p := run(t, where, Options{Registry: r, MaxBytes: 1000})
	id := p.start(t, StartRequest{Name: "times"})
	p.ends(t, id, forebay.OrchestrationFailed)
	fits.Store(true)
	mustDo(t, p.Rewind(t.Context(), tenant, id, ""))
	o := p.ends(t, id, forebay.OrchestrationCompleted)
	if want := fmt.Sprintf("%q", time.UnixMilli(c.Now()).UTC().Format(time.RFC3339)); string(o.Output) != want {
		t.Errorf("it has seen %s, not %s", o.Output, want)
	}
}
