package store

import (
	"fmt"
	"testing"
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
