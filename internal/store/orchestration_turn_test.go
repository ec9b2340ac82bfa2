package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/forebayhq/forebay"
)

// Turns that were lost again and again are given out one at a time, so that the one that kills its process does not take the others with it.
func TestSuspectsComeAlone(t *testing.T) {
	onBothEngines(t, func(t *testing.T, e auditEngine) {
		s := e.open()
		tenant := tenantOf(t, s, "acme")
		for i := range 3 {
			err := s.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: fmt.Sprint(i), Execution: "first", Name: "deadly", Event: []byte("start")}, false)
			if err != nil {
				t.Fatal(err)
			}
		}
		for lost := range suspectLost + 1 {
			turns, err := s.ClaimTurns(t.Context(), anyWork(3))
			if err != nil {
				t.Fatal(err)
			}
			want := 3
			if lost == suspectLost {
				want = 1
			}
			if len(turns) != want || turns[0].Lost != lost {
				t.Fatalf("%d at once, lost %d times", len(turns), turns[0].Lost)
			}
			for i := range turns {
				if err := s.AbandonTurn(t.Context(), &turns[i], 0, true); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// The results of jobs count as bytes that a turn sees, like those of other activities.
func TestTurnSeesResultsOfJobsByTheirSize(t *testing.T) {
	onBothEngines(t, func(t *testing.T, e auditEngine) {
		s := e.open()
		tenant := tenantOf(t, s, "acme")
		if err := s.CreateOrchestration(t.Context(), NewOrchestration{Tenant: tenant, ID: "one", Execution: "first", Name: "fan", Event: []byte("start")}, false); err != nil {
			t.Fatal(err)
		}
		turn := takeTurn(t, s)
		if _, err := s.CompleteTurn(t.Context(), turn, &TurnResult{Status: forebay.OrchestrationRunning, Events: 1, History: []byte("start")}); err != nil {
			t.Fatal(err)
		}
		_, err := transact(t.Context(), s, stageChange, func(t *tx) (struct{}, error) {
			for i := range int64(3) {
				id := fmt.Sprint("job_", i)
				err := errors.Join(
					t.prep("INSERT INTO jobs (seq, id, tenant, queue, task, priority, max_attempts, created_at, input_size) VALUES (?, ?, ?, 1, 'shout', 4, 1, 1, 0)").
						int(1000+i).text(id).int(tenant).exec(),
					t.prep("INSERT INTO outcomes (seq, status, generation, attempt, version, completed_at, result_size) VALUES (?, 'succeeded', 1, 1, 1, 1, ?)").
						int(1000+i).int(maxTurnBytes/2+1).exec(),
					t.prep("INSERT INTO orchestration_inbox (instance, no, visible, answer, event_id, job) VALUES (?, ?, 1, 1, ?, ?)").
						int(turn.Instance).int(1<<40+i).int(i).text(id).exec())
				if err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, t.wakeInstance(turn.Instance, turn.Pool)
		})
		if err != nil {
			t.Fatal(err)
		}
		if turn = takeTurn(t, s); len(turn.Arrived) != 1 {
			t.Errorf("one turn sees %d results of 8 MiB each", len(turn.Arrived))
		}
	})
}
