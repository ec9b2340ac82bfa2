package admission

import "testing"

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlStates)
}
